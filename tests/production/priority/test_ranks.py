"""Moves by hand: what they change and what they leave, whom they refuse,
and what becomes of them later.
"""

from datetime import date, timedelta

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.core.domain.events import events_of
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed, StaleState
from apps.core.models import Event
from apps.production.domain.content.stages import content_of
from apps.production.domain.lifecycle.moves import MOVE_FUNCTIONS, set_priority
from apps.production.domain.priority.listing import queue_state
from apps.production.domain.priority.manual_moves import move_in_queue, undo_manual_move
from apps.production.domain.priority.ranks import (
    by_place,
    queue_order,
    queue_ranks,
    rank_of,
    ranked_requests,
    startable_requests,
)
from apps.production.domain.priority.rescoring import rescore_all
from apps.production.domain.requests.drafts import save_draft
from apps.production.enums import Verb
from apps.production.models import QueueEntry, QueueState, Request
from tests.factories.requests import AT, request_in

LATER = AT + timedelta(hours=2)


def keys() -> list[str]:
    return [request.key for request in ranked_requests()]


@pytest.fixture
def five(queued):
    """Five in the queue, of which three score the same."""
    days = (
        date(2026, 12, 1),
        date(2026, 12, 12),
        date(2026, 12, 12),
        date(2026, 12, 12),
        date(2026, 12, 30),
    )
    return [queued(deadline=day) for day in days]


def move(request, to, by, **more):
    return move_in_queue(request=request, to_rank=to, by=by, at=LATER, reason="freeze", **more)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5), st.booleans()), min_size=2, max_size=8)
)
def test_move_changes_only_what_it_says_and_the_order_stays_total(five, approver, moves):
    with transaction.atomic():
        before = keys()
        for number, to, beat in moves:
            if before.index(five[number].key) + 1 == to:
                continue
            move(five[number], to, approver)
            after = keys()
            assert after.index(five[number].key) + 1 == to
            assert [key for key in after if key != five[number].key] == [
                key for key in before if key != five[number].key
            ]
            before = after
            if beat:
                rescore_all(at=LATER)
                assert keys() == after
        assert [rank_of(request) for request in ranked_requests()] == [1, 2, 3, 4, 5]
        entries = list(QueueEntry.objects.select_related("request"))
        assert [entry.request.key for entry in sorted(entries, key=queue_order)] == keys()
        transaction.set_rollback(True)


def test_many_moves_between_the_same_two_find_room(five, approver):
    one, two = five[1], five[2]
    for turn in range(60):
        mover = (one, two)[turn % 2]
        move(mover, 3 if rank_of(mover) == 2 else 2, approver)
    assert sorted(queue_ranks().values()) == [1, 2, 3, 4, 5]
    assert {rank_of(one), rank_of(two)} == {2, 3}


def test_event_tells_who_moved_whom_from_where_to_where(five, approver):
    assert move(five[4], 1, approver) == 5
    event = events_of(five[4]).last()
    assert (event.kind, event.actor, event.reason) == ("request.moved", "opg-one", "freeze")
    assert event.data == {"rank_old": 5, "rank_new": 1}
    assert Event.objects.filter(kind="request.moved").count() == 1


def test_refusals(five, queued, nova, liaison, approver, shifter, admin, both):
    for by in (liaison, shifter, admin):
        with pytest.raises(NotAllowed):
            move(five[0], 2, by)
    own = request_in("queued", by=both, experiment=nova, approver=approver)
    with pytest.raises(NotAllowed):
        move(own, 1, both)
    draft = request_in("draft", by=liaison, experiment=nova, approver=approver)
    with pytest.raises(InvalidTransition, match="not in the queue"):
        move(draft, 1, approver)
    for to, reason, fields in (
        (0, "x", {"to_rank"}),
        (7, "x", {"to_rank"}),
        (1, " ", {"reason", "to_rank"}),
    ):
        with pytest.raises(InvalidFields) as error:
            move_in_queue(request=five[0], to_rank=to, by=approver, at=LATER, reason=reason)
        assert set(error.value.problems) == fields
    with pytest.raises(InvalidTransition, match="has no manual position"):
        undo_manual_move(request=five[0], by=approver, at=LATER, reason="x")


def test_second_of_two_people_is_told_who_was_first(five, approver, second_approver):
    seen = queue_state().version
    move(five[4], 1, approver, version=seen, seen_rank=5)
    before = keys()
    with pytest.raises(
        StaleState,
        match="opg-one changed the queue in the meantime: NOVA-0005 was moved from rank 5 to 1",
    ):
        move(five[0], 3, second_approver, version=seen)
    with pytest.raises(StaleState, match="moved from rank 1 to 2"):
        move(five[0], 3, second_approver, seen_rank=1)
    assert keys() == before
    set_priority(request=five[2], priority=9, by=approver, at=LATER, reason="x")
    with pytest.raises(StaleState, match="NOVA-0003 is now 9"):
        undo_manual_move(
            request=five[4], by=second_approver, at=LATER, reason="x", version=seen + 1
        )


def test_it_stays_ahead_of_whom_it_was_put_ahead_of_while_scores_change(five, approver):
    late, soon = five[4], five[0]
    move(late, 1, approver)
    # The deadline comes near without any change.
    Request.objects.filter(pk=soon.pk).update(deadline=date(2026, 11, 21))
    rescore_all(at=LATER)
    assert keys()[:2] == [late.key, soon.key]
    set_priority(
        request=Request.objects.get(pk=soon.pk), priority=9, by=approver, at=LATER, reason="now"
    )
    assert keys()[:2] == [soon.key, late.key]


def test_it_stays_behind_whom_it_was_put_behind(five, approver):
    first, second = five[0], five[1]
    move(first, 2, approver)
    assert keys()[:2] == [second.key, first.key]
    Request.objects.filter(pk=first.pk).update(deadline=date(2026, 11, 21))
    rescore_all(at=LATER)
    assert keys()[:2] == [second.key, first.key]


def test_score_decides_again_when_a_move_is_undone_or_a_priority_set(five, approver):
    before = keys()
    move(five[4], 1, approver)
    assert undo_manual_move(request=five[4], by=approver, at=LATER, reason="no freeze") == 5
    assert keys() == before
    move(five[4], 1, approver)
    set_priority(request=five[4], priority_class="low", by=approver, at=LATER, reason="late")
    assert keys() == before
    entry = QueueEntry.objects.get(pk=five[4].pk)
    assert (entry.hand_points, entry.hand_at) == (0, None)


def test_held_one_keeps_its_place_and_is_passed_over(five, approver):
    before = keys()
    MOVE_FUNCTIONS[Verb.HOLD](request=five[1], by=approver, at=LATER, reason="memory")
    assert keys() == before
    assert five[1] not in startable_requests()
    assert rank_of(five[1]) == 2
    rescore_all(at=LATER)
    move(five[1], 1, approver)
    MOVE_FUNCTIONS[Verb.RELEASE](request=five[1], by=approver, at=LATER)
    assert (startable_requests().first(), rank_of(five[1])) == (five[1], 1)


def test_who_starts_leaves_the_ranks_and_stays_in_order_for_jobs(five, approver):
    move(five[4], 1, approver)
    MOVE_FUNCTIONS[Verb.START](request=five[4], by=approver, at=LATER)
    assert len(keys()) == 4
    assert Request.objects.order_by(*by_place()).first() == five[4]
    MOVE_FUNCTIONS[Verb.CANCEL](request=five[4], by=approver, at=LATER, reason="x")
    assert not QueueEntry.objects.filter(pk=five[4].pk).exists()


def test_beat_scores_those_that_came_past_the_services_and_writes_no_more_than_changed(
    five, approver
):
    rescore_all(at=LATER)
    assert rescore_all(at=LATER + timedelta(seconds=1)) == 0
    QueueEntry.objects.filter(pk=five[0].pk).delete()
    assert rank_of(five[0]) is None
    assert keys()[-1] == five[0].key
    rescore_all(at=LATER)
    assert keys()[0] == five[0].key
    assert QueueState.objects.get().scored_at == LATER


def test_deadline_that_is_put_off_is_scored_at_once(five, liaison):
    first = five[0]
    content = content_of(first)
    changed = type(content)(**{**vars(content), "deadline": date(2027, 3, 1)})
    save_draft(request=first, content=changed, version=first.version, by=liaison, at=LATER)
    assert rank_of(first) == 4  # as many points as the last, which is younger
