"""Jobs sent to the simulated cluster: the contract of those to which jobs can be sent, restarts,
and failures.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from apps.clusters.schedulers.base import JobState, OwnedJob, SchedulerError, SubmissionRefused
from apps.clusters.schedulers.simulated import Simulated, add_records, open_accounting
from apps.demo.simulation.simulator import Config, Simulator
from tests.contracts.submission import (
    LONG,
    Harness,
    OwnerHarness,
    OwnerSubmissionContract,
    SubmissionContract,
    ended,
    job,
    owned_job,
    states,
    waiting,
)


class SimulatedHarness:
    """A simulation whose clock goes on by a second each time that somebody waits."""

    def __init__(self, directory: Path, **config: object) -> None:
        self.config = Config(
            **{
                "directory": directory,
                "spool": directory / "spool",
                "days": 0.01,
                "jobs_per_day": 24,
                **config,
            }
        )
        self.scheduler = Simulated("sim", {"dir": str(directory)})
        self.spool_directory = directory / "spool"
        self.directory = "/data"
        self.owner = "novapro"
        self.now = time.time()
        self.simulator = Simulator(self.config, self.now)
        self.go_on()

    def go_on(self, seconds: float = 1) -> None:
        self.now = max(self.now + seconds, time.time())
        for _ in self.simulator.advance(self.now):
            pass

    def restart(self) -> None:
        self.simulator.close()
        self.simulator = Simulator(self.config, self.now)

    def moment(self) -> datetime:
        return datetime.fromtimestamp(self.now, UTC)

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(300):
            self.go_on()
            if condition():
                return
        raise AssertionError("this is not so after 300 steps")


class TestSimulatedSubmission(SubmissionContract):
    @pytest.fixture(scope="class")
    @classmethod
    def harness(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
        harness = SimulatedHarness(tmp_path_factory.mktemp("sent"), pace=500, calm=True)
        yield harness
        harness.simulator.close()


class TestSimulatedOwnerSubmission(OwnerSubmissionContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[OwnerHarness]:
        harness = SimulatedHarness(tmp_path, pace=20, calm=True)
        yield harness
        harness.simulator.close()


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[SimulatedHarness]:
    harness = SimulatedHarness(tmp_path, pace=20, calm=True)
    yield harness
    harness.simulator.close()


def test_a_restart_takes_up_what_was_sent_held_and_released(harness):
    spool_id = harness.scheduler.submit(job(harness, LONG, tasks=4))
    harness.go_on()
    harness.scheduler.hold(spool_id)
    harness.restart()
    harness.go_on(30)
    assert list(waiting(harness, spool_id)) == ["held"]
    harness.restart()
    harness.go_on(30)
    assert waiting(harness, spool_id).total() == 4
    harness.scheduler.release(spool_id)
    harness.go_on()
    harness.restart()
    harness.go_on(900)
    assert set(states(harness, spool_id).values()) == {JobState.COMPLETED}
    assert len(ended(harness, spool_id)) == 4


def test_a_step_that_was_killed_is_made_again(harness, tmp_path):
    spool_id = harness.scheduler.submit(job(harness, tasks=2))
    simulator = harness.simulator
    simulator._commit = None  # killed before it
    with pytest.raises(TypeError):
        harness.go_on()
    harness.restart()
    harness.go_on(900)
    assert len(ended(harness, spool_id)) == 2


def test_jobs_fail_as_those_of_the_simulation_do(tmp_path):
    harness = SimulatedHarness(tmp_path, pace=20)
    spool_id = harness.scheduler.submit(job(harness, tasks=400))
    harness.go_on(3000)
    jobs_by_state = Counter(states(harness, spool_id).values())
    assert jobs_by_state[JobState.COMPLETED] > 0
    assert jobs_by_state[JobState.FAILED] > 0, "samweb is out when a simulation begins"
    failed = next(
        value for value in ended(harness, spool_id).values() if value.state == JobState.FAILED
    )
    assert "samweb" in Path(failed.stdout_path).read_text()
    harness.simulator.close()


def test_without_a_simulation_nothing_is_taken(tmp_path):
    scheduler = Simulated("sim", {"dir": str(tmp_path / "none")})
    with pytest.raises(SchedulerError):
        scheduler.find_submitted("a.1.b")
    open_accounting(tmp_path / "none").close()
    assert scheduler.find_submitted("a.1.b") is None


def most_together(records) -> int:
    """Return how many of these ran at one moment, at most."""
    return max(
        sum(other.started_at <= at.started_at < other.ended_at for other in records)
        for at in records
    )


def test_no_more_tasks_run_together_than_was_asked_for(harness):
    free = harness.scheduler.submit(replace(job(harness, tasks=8), most_at_once=0))
    few = harness.scheduler.submit(replace(job(harness, tasks=8), most_at_once=2))
    harness.go_on(30)
    harness.restart()
    for word in (harness.scheduler.hold, harness.scheduler.release):
        word(few)
        harness.go_on(60)
    harness.go_on(100_000)
    records = list(
        harness.scheduler.finished_jobs(
            since=datetime(2020, 1, 1, tzinfo=UTC), until=harness.moment()
        )
    )
    assert most_together([other for other in records if other.spool_id == free]) > 2
    limited = [other for other in records if other.spool_id == few]
    assert (len(limited), most_together(limited)) == (8, 2)
    assert {one.state for one in limited} == {JobState.COMPLETED}


def test_failed_job_of_a_user_runs_again_as_the_user(harness):
    first = harness.scheduler.submit(job(harness, LONG))
    harness.go_on()
    script = b"#!/bin/bash\nexport EXPERIMENT=nova STAGE=reco RELEASE=v09_72 CONFIG=prod_reco.fcl\n"
    environment = b"OPSPORTAL_REQUEST=NOVA-0001\0OPSPORTAL_STAGE=reco\0HOME=/home/novapro\0"
    owned = OwnedJob(
        "retry.1", "novapro", first, script, environment, account="nova", memory_bytes=2**31
    )
    with pytest.raises(SubmissionRefused):
        harness.scheduler.submit_as_owner(owned)  # the first one is still there
    with pytest.raises(SubmissionRefused):
        harness.scheduler.submit_as_owner(replace(owned, task=0))
    harness.until(lambda: "0" in ended(harness, first))
    retry = harness.scheduler.submit_as_owner(replace(owned, task=0))
    assert harness.scheduler.find_submitted("retry.1") == retry
    harness.until(lambda: ended(harness, retry))
    (record,) = ended(harness, retry).values()
    assert (record.user, record.account, record.work_dir) == (
        "novapro",
        "nova",
        "/home/novapro/production/reco",
    )
    assert not Simulated("sim", {"dir": "x"}).submits_as_owner
    assert Simulated("sim", {"dir": "x", "owners": "yes"}).submits_as_owner


def test_task_whose_node_was_lost_is_there_until_its_next_attempt_ends(harness):
    first = harness.scheduler.submit(job(harness, LONG, tasks=2))
    harness.until(lambda: bool(ended(harness, first)))
    (record,) = ended(harness, first).values()
    _, _, task = record.job_id.partition("_")
    with harness.simulator.store as store:
        store.execute("DELETE FROM attempt")
        add_records(store, [replace(record, state=JobState.NODE_FAIL)])
    with pytest.raises(SubmissionRefused):
        harness.scheduler.submit_as_owner(owned_job(harness, first, int(task)))

    with harness.simulator.store as store:
        add_records(store, [replace(record, attempt=2)])
    assert harness.scheduler.submit_as_owner(owned_job(harness, first, int(task)))
