"""The scheduler in docs/adding-a-scheduler.md is short,
and keeps the contract as it stands there.
"""

import importlib.util
import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest

from apps.clusters.schedulers.base import EntryUnreadable, JobState, SchedulerError, SpoolEntry
from tests.contracts.scheduler import Harness, Job, SchedulerContract

DOCUMENT = Path(__file__).parents[2] / "docs" / "adding-a-scheduler.md"
CODE = re.search(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)[1]


@pytest.fixture(scope="module")
def heron(tmp_path_factory) -> ModuleType:
    """Return the document's code as a module."""
    path = tmp_path_factory.mktemp("heron") / "heron.py"
    path.write_text(CODE)
    spec = importlib.util.spec_from_file_location("heron", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class HeronHarness:
    """Writes what Heron writes."""

    def __init__(self, heron: ModuleType, directory: Path) -> None:
        self.spool_directory = directory / "spool"
        self.spool_directory.mkdir()
        self.history = directory / "history.jsonl"
        self.output = directory
        self.scheduler = heron.Heron("lake", {"history": str(self.history)})
        self.states = {state: name for name, state in heron.STATES.items()}
        self.next_id = 1

    def submit(self, job: Job) -> str:
        number, now = str(self.next_id), int(datetime.now(UTC).timestamp())
        self.next_id += 1
        facts = {
            "environment": dict(job.environment),
            "submitted": now,
            "user": "ana",
            "name": job.name,
        }
        (self.spool_directory / f"{number}.sh").write_bytes(job.script)
        (self.spool_directory / f"{number}.new").write_text(json.dumps(facts))
        (self.spool_directory / f"{number}.new").rename(self.spool_directory / f"{number}.json")
        output = self.output / f"{number}.out"
        output.write_text(job.output)
        for task in range(job.tasks) if job.tasks else [None]:
            row = {
                "job_id": number if task is None else f"{number}.{task}",
                "attempt": 1,
                "state": self.states[job.state],
                "exit_code": job.exit_code,
                "signal": job.signal,
                "submitted_at": now,
                "started_at": now if job.started else None,
                "ended_at": now,
                "stdout_path": str(output),
            }
            with self.history.open("a") as file:
                file.write(json.dumps(row) + "\n")
        return number

    def wait_ended(self, spool_ids: Iterable[str]) -> None:
        """They have ended."""

    def half_written(self, directory: Path) -> SpoolEntry:
        (directory / "7.sh").write_bytes(b"#!/bin/")
        return SpoolEntry("7", directory / "7.sh")


class TestHeron(SchedulerContract):
    @pytest.fixture(scope="class")
    @classmethod
    def harness(cls, heron: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Harness:
        return HeronHarness(heron, tmp_path_factory.mktemp("lake"))

    @staticmethod
    def task_ids(spool_id: str, tasks: int) -> set[str]:
        return {f"{spool_id}.{n}" for n in range(tasks)}


def test_it_is_short() -> None:
    assert CODE.count("\n") < 100


def test_what_cannot_be_read_is_said(heron, tmp_path) -> None:
    (tmp_path / "1.sh").touch()
    (tmp_path / "1.json").write_text('{"environment": 3}')
    (tmp_path / "history").write_text("{}\n")
    spool = heron.HeronSpool(tmp_path)

    with pytest.raises(EntryUnreadable, match=r"1\.sh"):
        spool.read(next(spool.scan()))
    with pytest.raises(SchedulerError, match="history"):
        list(
            heron.Heron("lake", {"history": str(tmp_path / "history")}).finished_jobs(
                since=None, until=None
            )
        )


def test_every_state_of_its_is_one_of_ours(heron) -> None:
    assert set(heron.STATES.values()) <= set(JobState)
