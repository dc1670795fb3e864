"""Torque keeps the contract of every scheduler; its pbs_server is the generator,
all else is real.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from apps.clusters.schedulers.base import JobState, SpoolEntry
from apps.clusters.schedulers.torque.scheduler import Torque
from tests.contracts.scheduler import Harness, Job, SchedulerContract
from tests.factories.torque_spool import SERVER, TorqueJob, TorqueServer, do


class TorqueHarness:
    """Submits by writing what pbs_server writes: the spool's files, accounting,
    and the output of each job.
    """

    def __init__(self, directory: Path) -> None:
        self.output = directory / "output"
        self.output.mkdir()
        self.server = TorqueServer(directory, subdirectories=True)
        self.spool_directory = self.server.jobs
        self.scheduler = Torque(
            "old",
            {
                "accounting": str(self.server.accounting),
                "jobs": str(self.server.jobs),
                "time_zone": "UTC",
            },
        )
        self.next_number = 4711

    def submit(self, job: Job) -> str:
        number, now = self.next_number, datetime.now(UTC)
        self.next_number += 1
        submitted = TorqueJob(
            number,
            chunks=[job.script[:12], job.script[12:]],
            variables=[(name.encode(), value.encode()) for name, value in job.environment.items()],
            tasks=job.tasks,
            created_at=int(now.timestamp()),
            attributes={"Output_Path": f"node1:{self.output}/{number}.out"},
        )
        if job.tasks:
            # each task has a path of its own, made up by the generator
            submitted.attributes.clear()
        do(self.server.submission(submitted))
        do(self.server.life(submitted))
        for task in range(job.tasks) if job.tasks else [None]:
            self._run(job, submitted, task, now)
        return submitted.id

    def _run(self, job: Job, submitted: TorqueJob, task: int | None, now: datetime) -> None:
        job_id = submitted.id if task is None else submitted.id.replace("[]", f"[{task}]")
        record, moment = self.server.record, int(now.timestamp())
        facts = (
            f"user=ana group=users jobname={job.name} queue=long ctime={moment} qtime={moment} "
            f"start={moment} "
        )
        facts += "owner=ana@login exec_host=node1/0-1+node2/0 Resource_List.walltime=01:00:00 "
        record(now, "Q", job_id, "queue=long")
        if job.started:
            record(now, "S", job_id, facts)
        if job.state == JobState.CANCELLED:
            record(now, "D", job_id, "requestor=ana@login")
        if job.started:
            status = (
                271
                if job.state == JobState.CANCELLED
                else job.exit_code or (job.signal and 256 + job.signal)
            )
            record(
                now,
                "E",
                job_id,
                f"{facts}end={moment} Exit_status={status} resources_used.cput=00:00:01",
            )
            path = self.output / f"{submitted.number}.out"
            if task is not None:
                path = self.output / f"{submitted.number}-{task}.out"
                self._redirect(submitted.number, task, path)
            path.write_text(job.output)

    def _redirect(self, number: int, task: int, path: Path) -> None:
        described = self.server.path(number, ".JB", task)
        described.write_text(
            described.read_text().replace(f"/home/ana/events.o{number}-{task}", str(path))
        )

    def wait_ended(self, spool_ids: Iterable[str]) -> None:
        """They have ended."""

    def half_written(self, directory: Path) -> SpoolEntry:
        """Leave a job with its name reserved and a part of its script."""
        path = directory / f"7.{SERVER}.SC"
        path.with_suffix(".JB").touch()
        path.write_bytes(b"#!/bin/")
        return SpoolEntry(f"7.{SERVER}", path)


class TestTorque(SchedulerContract):
    @pytest.fixture(scope="class")
    @classmethod
    def harness(cls, tmp_path_factory: pytest.TempPathFactory) -> Harness:
        return TorqueHarness(tmp_path_factory.mktemp("torque"))

    @staticmethod
    def task_ids(spool_id: str, tasks: int) -> set[str]:
        return {spool_id.replace("[]", f"[{n}]") for n in range(tasks)}
