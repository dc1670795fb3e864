"""What every scheduler adapter must do, shown with jobs that end in different ways.

Derive a test class from `SchedulerContract` and give it a class-scoped fixture `harness`:

    class TestMine(SchedulerContract):
        @pytest.fixture(scope="class")
        @classmethod
        def harness(cls, ...) -> Harness: ...
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

import pytest

from apps.clusters.schedulers.base import (
    EntryIncomplete,
    EntryVanished,
    JobRecord,
    JobState,
    LogPaths,
    Scheduler,
    SpooledJob,
    SpoolEntry,
)


@dataclass(frozen=True)
class Job:
    """A job to submit, and how it has to end.

    A real scheduler runs `script`; a simulated one obeys the rest.
    """

    name: str
    script: bytes
    state: JobState = JobState.COMPLETED
    exit_code: int = 0
    signal: int = 0
    tasks: int = 0  # of an array; 0 is a plain job
    started: bool = True
    output: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


# A job to be cancelled is cancelled by the harness: once it runs, or, where it has not `started`,
# while it waits.
JOBS = [
    Job("good", b"#!/bin/sh\necho all is well\n", output="all is well\n"),
    Job(
        "failing",
        b"#!/bin/sh\necho no luck\nexit 3\n",
        JobState.FAILED,
        exit_code=3,
        output="no luck\n",
    ),
    Job("crashing", b"#!/bin/sh\nkill -SEGV $$\n", JobState.FAILED, signal=11),
    Job("array", b"#!/bin/sh\necho a task\n", tasks=3, output="a task\n"),
    Job("cancelled", b"#!/bin/sh\nsleep 300\n", JobState.CANCELLED),
    Job("never started", b"#!/bin/sh\ntrue\n", JobState.CANCELLED, started=False),
    Job("latin-1, no last newline", b"#!/bin/sh\n# caf\xe9\necho done", output="done\n"),
    Job(
        "environment",
        b"#!/bin/sh\ntrue\n",
        environment={
            "OPSPORTAL_REQUEST": "R-1",
            "LINES2": "one\ntwo",
            "EQUALS": "a=b=c",
            "EMPTY": "",
            "ACCENT": "é",
        },
    ),
]


class Harness(Protocol):
    """How the contract drives one scheduler."""

    scheduler: Scheduler
    spool_directory: Path

    def submit(self, job: Job) -> str:
        """Submit a job, and see that it is cancelled where it has to be.

        Return its id in the spool.
        """
        ...

    def wait_ended(self, spool_ids: Iterable[str]) -> None:
        """Return once all these jobs have ended and accounting has them."""
        ...

    def half_written(self, directory: Path) -> SpoolEntry:
        """Make a spool at `directory` with one job that is not written to its end."""
        ...


@dataclass(frozen=True)
class Ran:
    """All jobs after their end: their ids, what the spool held, and what accounting says."""

    harness: Harness
    since: datetime
    until: datetime
    ids: dict[str, str]
    spooled: dict[str, SpooledJob]
    records: list[JobRecord]

    def records_of(self, job: Job) -> list[JobRecord]:
        """Return the attempts of a job, or of the tasks of an array."""
        return [record for record in self.records if record.spool_id == self.ids[job.name]]

    def collect(self, since: datetime, until: datetime) -> list[JobRecord]:
        """Ask accounting again, for our jobs alone: a real scheduler may have others."""
        finished = self.harness.scheduler.finished_jobs(since=since, until=until)
        return [record for record in finished if record.spool_id in self.ids.values()]


def _by_name(job: Job) -> str:
    return job.name


class SchedulerContract:
    """The tests. The jobs run once for all of them."""

    @pytest.fixture(scope="class")
    @classmethod
    def harness(cls) -> Harness:
        """Return the harness of the adapter under test."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def ran(cls, harness: Harness) -> Ran:
        """Submit every job, read it from the spool at once, and wait for its end."""
        since = datetime.now(UTC) - timedelta(seconds=2)
        spool = harness.scheduler.spool(harness.spool_directory)
        ids = {job.name: harness.submit(job) for job in JOBS}
        entries = {entry.job_id: entry for entry in spool.scan()}
        spooled = {name: spool.read(entries[spool_id]) for name, spool_id in ids.items()}
        harness.wait_ended(ids.values())
        until = datetime.now(UTC) + timedelta(seconds=2)
        empty = Ran(harness, since, until, ids, spooled, [])
        return Ran(harness, since, until, ids, spooled, empty.collect(since, until))

    @pytest.mark.parametrize("job", JOBS, ids=_by_name)
    def test_spool_holds_the_bytes_that_were_submitted(self, ran: Ran, job: Job) -> None:
        spooled = ran.spooled[job.name]
        variables = dict(spooled.variables)

        assert spooled.script == job.script
        assert spooled.job_id == ran.ids[job.name]
        assert {name: variables.get(name.encode()) for name in job.environment} == {
            name: value.encode() for name, value in job.environment.items()
        }
        assert ran.since <= spooled.submitted_at <= ran.until

    def test_spool_maps_events_to_entries(self, ran: Ran) -> None:
        spool = ran.harness.scheduler.spool(ran.harness.spool_directory)

        for entry in spool.scan():
            assert spool.entry_at(entry.path) == entry
            assert entry.path.parent in set(spool.watched())
        for directory in spool.watched():
            assert spool.entry_at(directory) is None

    def test_spool_can_change_one_variable_alone(self, ran: Ran) -> None:
        spool = ran.harness.scheduler.spool(ran.harness.spool_directory)
        job = ran.spooled["environment"]

        same = spool.with_environment(job, job.variables)
        masked = spool.with_environment(
            job, [(n, b"*" if n == b"EQUALS" else v) for n, v in job.variables]
        )

        assert same == job
        assert dict(masked.variables) == {**dict(job.variables), b"EQUALS": b"*"}
        assert b"a=b=c" in job.environment
        assert b"a=b=c" not in masked.environment
        assert masked.script == job.script

    def test_spool_says_when_an_entry_is_half_written(
        self, harness: Harness, tmp_path: Path
    ) -> None:
        entry = harness.half_written(tmp_path)
        spool = harness.scheduler.spool(tmp_path)

        assert list(spool.scan()) == [entry]
        with pytest.raises(EntryIncomplete):
            spool.read(entry)

    def test_spool_says_when_an_entry_is_gone(self, harness: Harness, tmp_path: Path) -> None:
        entry = harness.half_written(tmp_path)
        entry.path.rename(tmp_path / "gone")

        with pytest.raises(EntryVanished):
            harness.scheduler.spool(tmp_path).read(entry)

    @pytest.mark.parametrize("job", JOBS, ids=_by_name)
    def test_accounting_tells_how_each_job_ended(self, ran: Ran, job: Job) -> None:
        records = ran.records_of(job)

        assert len(records) == max(job.tasks, 1)
        for record in records:
            assert (record.state, record.exit_code, record.signal) == (
                job.state,
                job.exit_code,
                job.signal,
            )
            assert record.attempt == 1
            assert (record.started_at is not None) == job.started
            times = [record.submitted_at, record.started_at or record.submitted_at, record.ended_at]
            assert times == sorted(times)
            assert all(time.utcoffset() == timedelta(0) for time in times)
            assert abs(record.submitted_at - ran.spooled[job.name].submitted_at) < timedelta(
                seconds=2
            )

    def test_accounting_lists_no_attempt_twice(self, ran: Ran) -> None:
        counts = Counter(
            (record.job_id, record.submitted_at, record.attempt) for record in ran.records
        )

        assert set(counts.values()) == {1}

    def test_accounting_says_the_same_when_asked_again(self, ran: Ran) -> None:
        assert ran.collect(ran.since, ran.until) == ran.records

    def test_accounting_of_two_halves_is_that_of_the_whole(self, ran: Ran) -> None:
        middle = sorted(record.ended_at for record in ran.records)[len(ran.records) // 2]

        halves = [ran.collect(ran.since, middle), ran.collect(middle, ran.until)]

        assert {record.ended_at >= middle for record in halves[1]} == {True}
        assert sorted(map(repr, halves[0] + halves[1])) == sorted(map(repr, ran.records))

    def test_accounting_of_an_array_shares_one_script(self, ran: Ran) -> None:
        (array,) = [job for job in JOBS if job.tasks]
        spool_id = ran.ids[array.name]

        assert {record.job_id for record in ran.records_of(array)} == self.task_ids(
            spool_id, array.tasks
        )

    @pytest.mark.parametrize("job", [job for job in JOBS if job.output], ids=_by_name)
    def test_log_paths_lead_to_the_output(self, ran: Ran, job: Job) -> None:
        for record in ran.records_of(job):
            paths = self.log_paths(ran, record, job)

            assert paths is not None
            assert paths.stdout.read_text() == job.output

    @staticmethod
    def task_ids(spool_id: str, tasks: int) -> set[str]:
        """Return how people see the tasks of an array.

        Slurm's way; a scheduler with another one says so here.
        """
        return {f"{spool_id}_{n}" for n in range(tasks)}

    @staticmethod
    def log_paths(ran: Ran, record: JobRecord, job: Job) -> LogPaths | None:
        """Ask for the paths as the harvest does, with what capture has kept."""
        spooled = ran.spooled[job.name]
        environment = {
            name.decode(errors="replace"): value.decode(errors="replace")
            for name, value in spooled.variables
        }
        return ran.harness.scheduler.log_paths(
            record, script=spooled.script, environment=environment
        )
