"""When a request may start: what it rests on, its interval, and when nothing is known."""

from datetime import UTC, datetime, timedelta

import pytest

from apps.production.domain.lifecycle.moves import MOVE_FUNCTIONS
from apps.production.domain.priority.expected_start import expected_start
from apps.production.domain.priority.rescoring import rescore_all
from apps.production.enums import Verb
from apps.production.models import QueueState
from tests.factories.requests import AT as MADE

AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def state(starts: int, days: float = 60.0) -> QueueState:
    return QueueState(starts=starts, starts_days=days)


def test_nothing_is_known_from_too_few():
    start = expected_start(ahead=0, state=state(2), at=AT)
    assert not start.is_known
    assert start.basis == "Unknown: only 2 requests started in the last 60 days."
    assert "Unknown" in expected_start(ahead=0, state=QueueState(), at=AT).basis


def test_held_one_has_no_start():
    assert (
        expected_start(ahead=0, state=state(50), at=AT, held="it is on hold").basis
        == "Unknown while it is on hold."
    )


def test_interval_holds_the_likely_day_and_narrows_with_what_is_known():
    start = expected_start(ahead=9, state=state(60), at=AT)
    assert start.early <= start.likely <= start.late
    assert abs((start.likely - AT.date()).days - 10) <= 1
    assert "60 requests started" in start.basis
    assert "9 requests are ahead" in start.basis
    few = expected_start(ahead=9, state=state(3, 3.0), at=AT)
    assert few.late - few.early > start.late - start.early


@pytest.mark.parametrize("starts", [3, 10, 200])
def test_further_back_is_never_sooner(starts):
    starts_found = [
        expected_start(ahead=ahead, state=state(starts), at=AT) for ahead in (0, 1, 2, 5, 20)
    ]
    assert [start.likely for start in starts_found] == sorted(
        start.likely for start in starts_found
    )
    assert [start.late for start in starts_found] == sorted(start.late for start in starts_found)


def test_next_century_is_not_told():
    assert not expected_start(ahead=10_000, state=state(3), at=AT).is_known


def test_starts_are_counted_from_the_events(queued, approver):
    for _ in range(3):
        MOVE_FUNCTIONS[Verb.START](request=queued(), by=approver, at=MADE + timedelta(days=1))
    rescore_all(at=MADE + timedelta(days=4))
    queue_state = QueueState.objects.get()
    assert queue_state.starts == 3
    assert queue_state.starts_days == pytest.approx(4, abs=0.1)
    rescore_all(at=MADE + timedelta(days=100))
    assert QueueState.objects.get().starts == 0
