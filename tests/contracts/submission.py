"""What every scheduler adapter must do to which jobs can be sent, whether it is real or simulated.

Derive a test class from `SubmissionContract` and give it a class-scoped fixture `harness`:

    class TestMine(SubmissionContract):
        @pytest.fixture(scope="class")
        @classmethod
        def harness(cls, ...) -> Harness: ...
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pytest

from apps.clusters.schedulers.base import (
    BatchJob,
    CurrentState,
    HoldsJobs,
    JobRecord,
    JobState,
    KnowsQueue,
    OwnedJob,
    Scheduler,
    SchedulerError,
    SubmissionRefused,
    Submits,
    SubmitsAsOwner,
)

QUICK, LONG = "#!/bin/sh\necho done\n", "#!/bin/sh\nsleep 600\n"
#: Ends at once as task 0; other tasks go on.
FIRST_QUICK = "#!/bin/sh\ntest $SLURM_ARRAY_TASK_ID = 0 || sleep 600\n"
NOWHERE = "nowhere-at-all"


class Sends(Scheduler, Submits, KnowsQueue, Protocol):
    """A scheduler to which jobs can be sent, and which knows its queue."""


class Harness(Protocol):
    """How the contract drives one scheduler."""

    scheduler: Sends
    spool_directory: Path
    directory: str

    def moment(self) -> datetime:
        """Return the scheduler's clock."""
        ...

    def until(self, condition: Callable[[], bool]) -> None:
        """Let the scheduler go on until this is so; fail where that takes too long."""
        ...


class SendsAsOwner(Sends, SubmitsAsOwner, Protocol):
    """A scheduler to which jobs can be sent, also as other users."""


class OwnerHarness(Harness, Protocol):
    """How the contract drives one scheduler that submits as other users."""

    scheduler: SendsAsOwner
    owner: str


def job(harness: Harness, script: str = QUICK, tasks: int = 2) -> BatchJob:
    """A job that runs one task at a time, so that others wait while it does."""
    return BatchJob(
        name=f"NOVA-0001.1.{uuid4().hex}",
        script=script,
        tasks=tasks,
        time_limit_seconds=900,
        memory_bytes=40_000_000,
        environment={"OPSPORTAL_REQUEST": "NOVA-0001", "OPSPORTAL_STAGE": "it's one"},
        comment="opsportal:1",
        most_at_once=1,
        directory=harness.directory,
    )


def owned_job(harness: OwnerHarness, first_id: str, task: int | None) -> OwnedJob:
    """A quick job to submit once more as its owner."""
    return OwnedJob(
        name=f"retry.{uuid4().hex}",
        owner=harness.owner,
        first_id=first_id,
        script=QUICK.encode(),
        environment=b"COLOUR=red\0",
        task=task,
        time_limit_seconds=900,
        memory_bytes=40_000_000,
        directory=harness.directory,
    )


def submit_once_over(harness: OwnerHarness, job: OwnedJob) -> str:
    """Submit a job as its owner; wait while the first one is there.

    Slurm shows it as completing for a moment.
    """
    ids: list[str] = []

    def is_accepted() -> bool:
        with suppress(SubmissionRefused):
            ids.append(harness.scheduler.submit_as_owner(job))
        return bool(ids)

    harness.until(is_accepted)
    return ids[0]


def waiting(harness: Harness, spool_id: str) -> Counter[CurrentState]:
    """So many jobs of an array are in each state."""
    jobs_by_state: Counter[CurrentState] = Counter()
    for one in harness.scheduler.current_jobs():
        if one.spool_id == spool_id:
            jobs_by_state[one.state] += one.jobs
    return jobs_by_state


def ended(harness: Harness, spool_id: str) -> dict[str, JobRecord]:
    """What accounting has of an array, by the number of the task."""
    now = harness.moment()
    records = {}
    for record in harness.scheduler.finished_jobs(since=now - timedelta(hours=1), until=now):
        assert isinstance(record, JobRecord), f"{record.reason} {record.raw}"
        if record.spool_id == spool_id:
            records[record.job_id.partition("_")[2]] = record
    return records


def states(harness: Harness, spool_id: str) -> dict[str, JobState]:
    return {task: record.state for task, record in ended(harness, spool_id).items()}


class SubmissionContract:
    """The tests."""

    @pytest.fixture(scope="class")
    @classmethod
    def harness(cls) -> Harness:
        """Return the harness of the adapter under test."""
        raise NotImplementedError

    def test_an_array_is_in_the_spool_in_the_queue_and_in_the_end_in_accounting(
        self, harness: Harness
    ) -> None:
        sent = job(harness)

        spool_id = harness.scheduler.submit(sent)

        spool = harness.scheduler.spool(harness.spool_directory)
        harness.until(lambda: spool_id in {entry.job_id for entry in spool.scan()})
        spooled = spool.read(next(entry for entry in spool.scan() if entry.job_id == spool_id))
        assert spooled.script.decode() == sent.script
        variables = dict(spooled.variables)
        assert {name: variables[name.encode()].decode() for name in sent.environment} == dict(
            sent.environment
        )
        assert b"DATABASE_URL" not in variables
        harness.until(lambda: len(ended(harness, spool_id)) == sent.tasks)
        records = ended(harness, spool_id)
        assert {task: record.state for task, record in records.items()} == {
            "0": JobState.COMPLETED,
            "1": JobState.COMPLETED,
        }
        assert {(record.name, record.comment, record.attempt) for record in records.values()} == {
            (sent.name, sent.comment, 1)
        }
        assert harness.scheduler.find_submitted(sent.name) == spool_id, (
            "it is found after its end too"
        )

    def test_what_was_submitted_is_found_by_its_name_alone(self, harness: Harness) -> None:
        sent, other = job(harness, LONG), job(harness)

        spool_id = harness.scheduler.submit(sent)

        assert harness.scheduler.find_submitted(sent.name) == spool_id
        assert harness.scheduler.find_submitted(other.name) is None
        harness.scheduler.cancel(spool_id)

    def test_what_cannot_be_is_refused_and_not_there(self, harness: Harness) -> None:
        sent = job(harness)

        with pytest.raises(SubmissionRefused):
            harness.scheduler.submit(replace(sent, name="two words"))
        with pytest.raises(SubmissionRefused):
            harness.scheduler.submit(replace(sent, script="#!/bin/sh\0"))
        with pytest.raises(SubmissionRefused):
            harness.scheduler.submit(replace(sent, partition=NOWHERE))
        assert harness.scheduler.find_submitted(sent.name) is None

    def test_the_queue_is_read_held_released_and_ended(self, harness: Harness) -> None:
        scheduler = harness.scheduler
        assert isinstance(scheduler, HoldsJobs)
        spool_id = scheduler.submit(job(harness, LONG, tasks=3))
        harness.until(lambda: waiting(harness, spool_id).total() == 3)

        scheduler.hold(spool_id)
        scheduler.hold(spool_id)
        harness.until(lambda: waiting(harness, spool_id)[CurrentState.HELD] >= 2)
        now = waiting(harness, spool_id)
        assert now[CurrentState.QUEUED] == 0
        assert now.total() == 3
        scheduler.release(spool_id)
        harness.until(lambda: waiting(harness, spool_id)[CurrentState.HELD] == 0)
        assert waiting(harness, spool_id).total() == 3

        scheduler.cancel(spool_id)
        harness.until(lambda: not waiting(harness, spool_id))
        harness.until(lambda: len(ended(harness, spool_id)) == 3)
        assert set(states(harness, spool_id).values()) == {JobState.CANCELLED}

        for told in (scheduler.cancel, scheduler.hold, scheduler.release):
            told(spool_id)
        assert set(states(harness, spool_id).values()) == {JobState.CANCELLED}, (
            "what has ended stays as it is"
        )

    def test_what_is_held_can_be_ended(self, harness: Harness) -> None:
        scheduler = harness.scheduler
        assert isinstance(scheduler, HoldsJobs)
        spool_id = scheduler.submit(job(harness, LONG, tasks=2))
        harness.until(lambda: waiting(harness, spool_id).total() == 2)
        scheduler.hold(spool_id)
        scheduler.cancel(spool_id)

        harness.until(lambda: len(ended(harness, spool_id)) == 2)
        # Slurm shows it completing for a moment yet.
        harness.until(lambda: not waiting(harness, spool_id))

    @pytest.mark.parametrize("word", ["cancel", "hold", "release"])
    def test_no_id_is_taken_for_an_option(self, harness: Harness, word: str) -> None:
        with pytest.raises(SchedulerError):
            getattr(harness.scheduler, word)("--all")


class OwnerSubmissionContract:
    """The tests of those that submit as other users."""

    @pytest.fixture
    def harness(self) -> OwnerHarness:
        """Return the harness of the adapter under test."""
        raise NotImplementedError

    def test_a_task_runs_again_under_its_number_once_it_has_ended(
        self, harness: OwnerHarness
    ) -> None:
        scheduler = harness.scheduler
        first_id = scheduler.submit(job(harness, FIRST_QUICK, tasks=3))
        harness.until(lambda: bool(ended(harness, first_id)))
        finished = set(ended(harness, first_id))
        there = sorted({"0", "1", "2"} - finished)
        assert there, "the array still has tasks"

        for task in there:
            with pytest.raises(SubmissionRefused, match=f"{first_id}_{task} is queued or runs"):
                scheduler.submit_as_owner(owned_job(harness, first_id, int(task)))
        scheduler.submit_as_owner(owned_job(harness, first_id, int(finished.pop())))

        scheduler.cancel(first_id)
        for task in there:
            retry = submit_once_over(harness, owned_job(harness, first_id, int(task)))
            harness.until(partial(ended, harness, retry))
            assert states(harness, retry) == {task: JobState.COMPLETED}
            (record,) = ended(harness, retry).values()
            assert (record.job_id, record.user) == (f"{retry}_{task}", harness.owner)

    def test_a_job_without_tasks_runs_again_without_one(self, harness: OwnerHarness) -> None:
        scheduler = harness.scheduler
        first_id = scheduler.submit_as_owner(owned_job(harness, "1", None))
        with pytest.raises(SubmissionRefused, match=f"{first_id} is queued or runs"):
            scheduler.submit_as_owner(owned_job(harness, first_id, None))
        harness.until(lambda: bool(ended(harness, first_id)))

        retry = submit_once_over(harness, owned_job(harness, first_id, None))

        harness.until(lambda: bool(ended(harness, retry)))
        assert [record.job_id for record in ended(harness, retry).values()] == [retry]
