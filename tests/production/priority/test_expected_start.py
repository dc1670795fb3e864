"""When a request may start: what it rests on, its interval, and when nothing is known."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.production.domain.lifecycle.moves import MOVE_FUNCTIONS
from apps.production.domain.priority.expected_start import Start, expected_start
from apps.production.domain.priority.listing import starts_in_queue
from apps.production.domain.priority.pace import QueuedWork, Throughput, measure_pace, work_ahead
from apps.production.domain.priority.rescoring import rescore_all
from apps.production.enums import Verb
from apps.production.models import QueueEntry, QueueState, Request
from tests.factories.queue import set_pace
from tests.factories.requests import AT as MADE

AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
HOUR = 3600.0
#: The sizes of the requests of a queue in order, in core-seconds; None is unknown.
QUEUE = st.lists(st.none() | st.floats(0, 1e9), min_size=2, max_size=8)
PACES = st.lists(st.floats(1e3, 1e8), min_size=5, max_size=30)


def start(ahead: float = 0.0, *, started: float = 0.0, work_by_day=(24 * HOUR,) * 10) -> Start:
    throughput = Throughput(work_by_day, QueuedWork(int(started > 0), started * HOUR))
    return expected_start(
        ahead=QueuedWork(int(ahead > 0), ahead * HOUR), throughput=throughput, at=AT
    )


def starts(queue, work_by_day, *, started=()) -> list[Start]:
    """Return the expected starts of the requests of a queue, all of which can start."""
    throughput = Throughput(work_by_day, work_ahead((True, size) for size in started)[-1])
    works = work_ahead((True, size) for size in queue)[:-1]
    return [expected_start(ahead=work, throughput=throughput, at=AT) for work in works]


def never_earlier(start: Start, before: Start) -> bool:
    """Whether no date of a start is before that of another; an unknown one is far away."""
    if not start.is_known:
        return start.is_far
    return before.is_known and all(
        new >= old for new, old in zip(start.days, before.days, strict=True)
    )


def test_nothing_is_known_from_too_few_days():
    assert not start(work_by_day=[HOUR] * 4).is_known
    assert start(work_by_day=[HOUR] * 4).basis == (
        "Unknown until jobs of requests have ended on 5 days, which give the pace of the clusters: "
        "in the last 30 days they did on 4."
    )
    assert start(work_by_day=[]).basis.endswith("they did on 0.")


def test_held_one_has_no_start():
    held = expected_start(ahead=QueuedWork(), throughput=Throughput(), at=AT, held="it is on hold")
    assert held.basis == "Unknown while it is on hold."


def test_start_follows_from_the_work_ahead_and_the_pace():
    assert start().likely == AT.date()
    assert start().basis == "No work is ahead of it."
    behind = start(72, started=48)
    assert (behind.likely - AT.date()).days == 5
    assert behind.basis == (
        "120 core-hours are ahead of it: 1 request in the queue, 1 in production. Clusters do "
        "24 core-hours a day (10 days with work in the last 30), which gives the likely date. "
        "At 24 a day it would start on the earliest date, at 24 on the latest."
    )


def test_requests_on_hold_are_ahead_of_one_but_do_not_delay_it():
    *_, ahead = work_ahead([(True, 72 * HOUR), (False, 24 * HOUR)])
    throughput = Throughput((24 * HOUR,) * 10)
    behind = expected_start(ahead=ahead, throughput=throughput, at=AT)
    assert (behind.likely - AT.date()).days == 3
    assert "ahead of it: 2 requests in the queue (1 of them on hold, not counted)" in behind.basis


def test_days_of_little_work_do_not_slow_the_pace():
    work = [10.0] * 20 + [100.0] * 10
    assert measure_pace(work).usual == 100.0
    assert measure_pace([10.0, 10.0, 20.0, 20.0, 40.0]).slow == 20.0


def test_next_century_is_not_told():
    far = start(24 * 1001)
    assert (far.is_known, far.is_far) == (False, True)


@given(queue=QUEUE, started=QUEUE, work_by_day=PACES, data=st.data())
def test_start_of_a_request_improves_no_date(queue, started, work_by_day, data):
    place = data.draw(st.integers(0, len(queue) - 1))
    before = starts(queue, work_by_day, started=started)
    after = starts(
        queue[:place] + queue[place + 1 :], work_by_day, started=[*started, queue[place]]
    )
    others = before[:place] + before[place + 1 :]
    # Sums in another order may differ by rounding, at most by one day.
    later = timedelta(days=1)
    for new, old in zip(after, others, strict=True):
        if new.is_known and old.is_known:
            assert all(day + later >= was for day, was in zip(new.days, old.days, strict=True))
        assert not (new.is_known and old.is_far) or new.likely - AT.date() >= timedelta(days=999)


@given(queue=QUEUE, work_by_day=PACES, data=st.data())
def test_move_up_improves_no_date_of_those_it_passes(queue, work_by_day, data):
    old = data.draw(st.integers(1, len(queue) - 1))
    new = data.draw(st.integers(0, old - 1))
    before = starts(queue, work_by_day)
    moved = [*queue[:new], queue[old], *queue[new:old], *queue[old + 1 :]]
    after = starts(moved, work_by_day)
    for place in range(new, old):
        assert never_earlier(after[place + 1], before[place])
    assert never_earlier(before[old], after[new])


@given(queue=QUEUE, work_by_day=PACES)
def test_further_back_is_never_sooner(queue, work_by_day):
    dates = starts(queue, work_by_day)
    for behind, ahead in zip(dates[1:], dates, strict=False):
        assert never_earlier(behind, ahead)


def test_request_that_starts_moves_no_other_forward(queued, approver):
    first, second, third = (queued() for _ in range(3))
    for size, request in ((50_000, first), (50, second), (500, third)):
        QueueEntry.objects.filter(request=request).update(core_seconds=size * HOUR)
    set_pace(1000)
    before = starts_in_queue(at=AT)
    order = sorted(before, key=lambda pk: before[pk].likely)
    assert order == [first.pk, second.pk, third.pk]
    assert (before[second.pk].likely - AT.date()).days == 50, "the size of the first counts"

    QueueEntry.objects.filter(request=first).update(is_queued=False)
    Request.objects.filter(pk=first.pk).update(state="running")
    after = starts_in_queue(at=AT)
    assert {pk: after[pk].days for pk in order[1:]} == {pk: before[pk].days for pk in order[1:]}
    Request.objects.filter(pk=first.pk).update(part_done=0.5)
    assert (starts_in_queue(at=AT)[second.pk].likely - AT.date()).days == 25


def test_starts_are_counted_from_the_events(queued, approver):
    for _ in range(3):
        MOVE_FUNCTIONS[Verb.START](request=queued(), by=approver, at=MADE + timedelta(days=1))
    rescore_all(at=MADE + timedelta(days=4))
    queue_state = QueueState.objects.get()
    assert queue_state.starts == 3
    assert queue_state.starts_days == pytest.approx(4, abs=0.1)
    rescore_all(at=MADE + timedelta(days=100))
    assert QueueState.objects.get().starts == 0
