"""What every adapter that can be asked for its queue must do,
shown with a command that answers what it is told to.

Derive a test class from `QueueContract` and give it a fixture `harness`, whose `say` writes an
answer of the scheduler.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

import pytest

from apps.clusters.schedulers.base import CurrentState, KnowsQueue, SchedulerError

AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
QUEUED, RUNNING, HELD = CurrentState.QUEUED, CurrentState.RUNNING, CurrentState.HELD
ENDED = None


@dataclass(frozen=True)
class Known:
    """A submission as the scheduler has it: the state of each of its jobs,
    where one that has ended may still be.
    """

    number: int
    states: Sequence[CurrentState | None]
    submitted_at: datetime = AT
    account: str = "nova"
    name: str = "reco"

    @property
    def is_array(self) -> bool:
        return len(self.states) > 1


def write_program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


class Harness(Protocol):
    """How the contract drives one adapter; its time limit is `LIMIT_SECONDS`."""

    scheduler: KnowsQueue
    program: Path

    def say(self, jobs: Sequence[Known]) -> None:
        """Let the command answer with these jobs from now on."""
        ...

    def spool_id(self, job: Known) -> str:
        """Return the id that the submission has in the spool."""
        ...


LIMIT_SECONDS = "20"


class QueueContract:
    """The tests."""

    @pytest.fixture
    def harness(self) -> Harness:
        """Return the harness of the adapter under test."""
        raise NotImplementedError

    def ask(self, harness: Harness) -> dict[tuple[str, datetime, CurrentState, str], int]:
        found, reasons = {}, set()
        for one in harness.scheduler.current_jobs():
            key = (one.spool_id, one.submitted_at, one.state, one.account)
            assert (key, one.reason) not in reasons, (
                "a submission is told once in each state, with each reason"
            )
            reasons.add((key, one.reason))
            found[key] = found.get(key, 0) + one.jobs
        return found

    def test_it_offers_its_queue(self, harness: Harness) -> None:
        assert isinstance(harness.scheduler, KnowsQueue)

    def test_jobs_are_counted_by_submission_and_state(self, harness: Harness) -> None:
        array = Known(7, [RUNNING, *[QUEUED] * 3, HELD, ENDED])
        later = Known(8, [HELD], AT + timedelta(days=1), account="dune")
        harness.say([array, later, Known(9, [ENDED])])
        seven, eight = harness.spool_id(array), harness.spool_id(later)
        assert self.ask(harness) == {
            (seven, AT, RUNNING, "nova"): 1,
            (seven, AT, QUEUED, "nova"): 3,
            (seven, AT, HELD, "nova"): 1,
            (eight, AT + timedelta(days=1), HELD, "dune"): 1,
        }

    def test_an_empty_queue_is_known_to_be_empty(self, harness: Harness) -> None:
        harness.say([])
        assert self.ask(harness) == {}
        write_program(harness.program, "true")
        assert self.ask(harness) == {}

    def test_job_without_an_account_has_none(self, harness: Harness) -> None:
        harness.say([Known(7, [QUEUED], account="")])
        assert [key[3] for key in self.ask(harness)] == [""]

    def test_what_users_write_hides_no_jobs(self, harness: Harness) -> None:
        strange = Known(7, [QUEUED], name="</Job> ]}, \"'&#0; \x0b\x1b é \ufffe")
        harness.say([strange, Known(8, [RUNNING])])
        assert sorted(state for _, _, state, _ in self.ask(harness)) == [QUEUED, RUNNING]

    def test_a_command_that_fails_says_why(self, harness: Harness) -> None:
        write_program(harness.program, "echo 'cannot connect to server' >&2; exit 1")
        with pytest.raises(SchedulerError, match="cannot connect to server"):
            self.ask(harness)
        harness.program.unlink()
        with pytest.raises(SchedulerError, match="cannot be run"):
            self.ask(harness)
