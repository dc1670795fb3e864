"""Two approvers decide in two processes at once, and one process is killed:
one whole decision stands.
"""

import os
import signal
import time
from collections.abc import Callable

import pytest
from django.db import connection, connections

from apps.core.domain.events import events_of
from apps.core.errors import InvalidTransition, StaleState
from apps.diagnosis.domain.known_errors.changes import decide_change, submit_change
from apps.diagnosis.models import KnownError, KnownErrorChange
from apps.production.domain.lifecycle.moves import MOVE_FUNCTIONS, approve_request
from apps.production.enums import PORTAL, Verb
from apps.production.models import Request
from tests.factories.requests import AT, request_in

pytestmark = pytest.mark.django_db(transaction=True)

DECIDED, REFUSED = 0, 1
SECONDS = 60
#: The killed process stands before its first statement with this text; at None it has committed.
REQUEST_MOMENTS = [
    "FOR UPDATE",
    'INTO "production_signature"',
    'UPDATE "production_request"',
    "core_event",
    None,
]
CHANGE_MOMENTS = [
    "FOR UPDATE",
    'INTO "diagnosis_knownerror"',
    'UPDATE "diagnosis_knownerrorchange"',
    "core_event",
    None,
]
KNOWN_ERROR = {
    "title": "Disk lost",
    "category": "service",
    "service": "storage",
    "regex": "disk gone",
    "role": "cause",
    "advice": "retry",
    "example": "disk gone",
}


def run_in_process(decide: Callable[[], object]) -> int:
    """Decide in another process; return its ID. It ends with `DECIDED`, `REFUSED` or,
    after any other error, 2.
    """
    connections.close_all()
    child = os.fork()
    if child:
        return child

    outcome = 2
    try:
        connections.close_all()
        decide()
        outcome = DECIDED
    except (StaleState, InvalidTransition):
        outcome = REFUSED
    finally:
        os._exit(outcome)


def decide_and_stop(decide: Callable[[], object], moment: str | None, ready: int) -> None:
    """Decide, but stop at a moment and report it on the pipe `ready`."""

    def stop() -> None:
        os.write(ready, b"x")
        time.sleep(SECONDS)

    def stop_at_moment(execute, sql, *arguments):
        if moment and moment in sql:
            stop()
        return execute(sql, *arguments)

    with connection.execute_wrapper(stop_at_moment):
        decide()
    if moment is None:
        stop()


def kill_first_of_two(
    first: Callable[[], object], second: Callable[[], object], moment: str | None
) -> int:
    """Let both decide, kill the first at the moment, while the second decides or waits;
    return how the second ended.
    """
    read_end, write_end = os.pipe()
    killed = run_in_process(lambda: decide_and_stop(first, moment, write_end))
    os.close(write_end)
    assert os.read(read_end, 1) == b"x", "the first process ended before the moment"
    os.close(read_end)
    survivor = run_in_process(second)

    # Kill the first only when the second waits for its lock, or did not have to.
    end = time.monotonic() + SECONDS
    while not (ended := os.waitpid(survivor, os.WNOHANG))[0] and not _is_waiting():
        assert time.monotonic() < end
        time.sleep(0.02)
    os.kill(killed, signal.SIGKILL)
    os.waitpid(killed, 0)
    _, status = ended if ended[0] else os.waitpid(survivor, 0)
    return os.waitstatus_to_exitcode(status)


def _is_waiting() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock')"
        )
        return bool(cursor.fetchone()[0])


@pytest.mark.parametrize("moment", REQUEST_MOMENTS)
def test_request_has_one_whole_decision(nova, liaison, approver, second_approver, moment):
    obj = request_in("awaiting_approval", by=liaison, experiment=nova, approver=approver)
    before = events_of(obj).count()
    copies = [Request.objects.get(pk=obj.pk) for _ in range(2)]
    outcome = kill_first_of_two(
        lambda: approve_request(request=copies[0], by=approver, at=AT),
        lambda: MOVE_FUNCTIONS[Verb.REJECT](
            request=copies[1], by=second_approver, at=AT, reason="no"
        ),
        moment,
    )

    obj.refresh_from_db()
    decisions = list(events_of(obj).order_by("pk"))[before:]
    kinds = [event.kind for event in decisions if event.actor != PORTAL]
    signatures = [signature.by for signature in obj.signatures.all()]
    if moment is None:
        assert outcome == REFUSED
        assert (obj.state, obj.approved_by, signatures) == ("queued", approver, [approver])
        assert kinds == ["request.approve"]
    else:
        assert outcome == DECIDED
        assert (obj.state, obj.approved_by, signatures) == ("rejected", None, [])
        assert kinds == ["request.reject"]
    assert [event.old for event in decisions[1:]] == [event.new for event in decisions[:-1]]
    assert decisions[-1].new == obj.state


@pytest.mark.parametrize("moment", CHANGE_MOMENTS)
def test_proposal_of_a_known_error_has_one_whole_decision(
    liaison, approver, second_approver, moment
):
    change = submit_change(
        known_error="DISK-GONE", values=KNOWN_ERROR, by=liaison, at=AT, reason="new"
    )
    copies = [KnownErrorChange.objects.get(pk=change.pk) for _ in range(2)]
    outcome = kill_first_of_two(
        lambda: decide_change(change=copies[0], approve=True, by=approver, at=AT),
        lambda: decide_change(
            change=copies[1], approve=False, by=second_approver, at=AT, reason="no"
        ),
        moment,
    )

    change.refresh_from_db()
    kinds = [event.kind for event in events_of(change).order_by("pk")]
    if moment is None:
        assert (outcome, change.state, kinds[1:]) == (REFUSED, "applied", ["known_error.changed"])
    else:
        assert (outcome, change.state, kinds[1:]) == (DECIDED, "rejected", ["known_error.rejected"])
    assert KnownError.objects.filter(pk="DISK-GONE").exists() == (moment is None)
