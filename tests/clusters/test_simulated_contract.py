"""The simulated cluster keeps the contract of every scheduler."""

import struct
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from apps.clusters.schedulers.base import JobRecord, SpoolEntry
from apps.clusters.schedulers.simulated import (
    Simulated,
    add_records,
    mark_complete,
    open_accounting,
)
from apps.demo.simulation.scripts import spooled_environment
from apps.demo.simulation.spool import SpoolWriter
from tests.contracts.scheduler import Harness, Job, SchedulerContract


class SimulatedHarness:
    """Submits by writing what `simulate` writes: a spool entry, logs, and accounting records."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.scheduler = Simulated("sim", {"dir": str(directory)})
        self.spool_directory = directory / "spool"
        self.writer = SpoolWriter(self.spool_directory)
        self.next_id = 100

    def submit(self, job: Job) -> str:
        spool_id, submitted = self.next_id, datetime.now(UTC).replace(microsecond=0)
        self.next_id += 10
        variables = [
            f"{name}={value}" for name, value in {"USER": "alice", **job.environment}.items()
        ]
        self.writer.write(spool_id, spooled_environment(variables), job.script)
        store = open_accounting(self.directory)
        add_records(
            store,
            [self._record(job, spool_id, task, submitted) for task in range(max(job.tasks, 1))],
        )
        mark_complete(store, time.time() + 3600)
        store.close()
        return str(spool_id)

    def _record(self, job: Job, spool_id: int, task: int, submitted: datetime) -> JobRecord:
        log = self.directory / f"{spool_id}-{task}.out"
        log.write_text(job.output)
        return JobRecord(
            job_id=f"{spool_id}_{task}" if job.tasks else str(spool_id),
            raw_id=spool_id + task,
            spool_id=str(spool_id),
            attempt=1,
            state=job.state,
            exit_code=job.exit_code,
            signal=job.signal,
            submitted_at=submitted,
            started_at=submitted if job.started else None,
            ended_at=datetime.now(UTC),
            stdout_path=str(log) if job.started else "",
        )

    def wait_ended(self, spool_ids: Iterable[str]) -> None:
        """They have ended."""

    def half_written(self, directory: Path) -> SpoolEntry:
        path = directory / "hash.7" / "job.7"
        path.mkdir(parents=True)
        (path / "environment").write_bytes(struct.pack("=I", 2) + b"A=1\0")
        return SpoolEntry("7", path)


class TestSimulated(SchedulerContract):
    @pytest.fixture(scope="class")
    @classmethod
    def harness(cls, tmp_path_factory: pytest.TempPathFactory) -> Harness:
        return SimulatedHarness(tmp_path_factory.mktemp("simulated"))
