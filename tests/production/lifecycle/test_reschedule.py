"""A liaison postpones a deadline after submission and asks for a class;
each line of *Your turn* has its button.
"""

from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone
from django.utils.text import capfirst
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.core.domain.events import events_of
from apps.core.errors import DomainError, InvalidFields, InvalidTransition, NotAllowed, StaleState
from apps.production.domain.approvals.inbox import inbox_items, waiting_for
from apps.production.domain.lifecycle.moves import set_priority
from apps.production.domain.requests.reschedule import open_class_request, reschedule
from apps.production.enums import CLOSED, POSTPONABLE, AttentionKind, RequestState
from apps.production.models import Attention, Request, Signature
from tests.factories.requests import AT, S, request_in
from tests.pages import text_of

LATER = AT + timedelta(hours=2)
WEEK = timedelta(days=7)


@pytest.fixture
def make(nova, liaison, approver):
    def make(state=S.RUNNING):
        return request_in(state, by=liaison, experiment=nova, approver=approver)

    return make


def now(request):
    return Request.objects.get(pk=request.pk)


def postpone(request, by, days=7, **changes):
    given = {
        "deadline": request.deadline + timedelta(days=days),
        "reason": "The freeze moved.",
        **changes,
    }
    return reschedule(request=request, by=by, at=LATER, **given)


@pytest.mark.parametrize("state", RequestState.values)
def test_deadline_moves_in_every_state_between_submission_and_end(state, make, liaison):
    request = make(state)
    before, signatures = (
        request.deadline,
        Signature.objects.filter(request=request, withdrawn_at=None).count(),
    )
    if state not in POSTPONABLE:
        with pytest.raises(InvalidTransition):
            postpone(request, liaison)
        assert now(request).deadline == before
        return
    postpone(request, liaison)
    event = events_of(request).get(kind="request.edited", reason="The freeze moved.")
    assert (now(request).deadline, now(request).state, event.actor) == (
        before + WEEK,
        state,
        str(liaison),
    )
    assert Signature.objects.filter(request=request, withdrawn_at=None).count() == signatures


def test_refusals(make, liaison, approver, shifter, other_liaison):
    request = make()
    for user in (approver, shifter, other_liaison):
        with pytest.raises(NotAllowed):
            postpone(request, user)
    with pytest.raises(StaleState):
        postpone(request, liaison, version=request.version - 1)
    for changes, field in (
        ({"reason": " "}, "reason"),
        ({"deadline": request.deadline - timedelta(days=1)}, "deadline"),
        ({"deadline": None}, "deadline"),
        ({"deadline": request.deadline}, "deadline"),
        ({"requested_class": "soon"}, "requested_class"),
        ({"requested_class": request.priority_class or "normal"}, "requested_class"),
    ):
        with pytest.raises(InvalidFields) as refused:
            postpone(request, liaison, **changes)
        assert field in refused.value.problems
    with pytest.raises(InvalidFields):
        postpone(make(S.DATA_QUALITY), liaison, requested_class="urgent")
    assert (
        not events_of(request)
        .filter(kind__in=["request.edited", "request.class_requested"])
        .exists()
    )


def test_requested_class_waits_for_an_approver_and_changes_no_score(make, liaison, approver):
    request = make(S.QUEUED)
    score = request.queue_entry.points
    reschedule(
        request=request,
        by=liaison,
        at=LATER,
        reason="For the conference.",
        requested_class="urgent",
    )
    assert (now(request).requested_priority, now(request).queue_entry.points) == (
        request.requested_priority,
        score,
    )
    asked = open_class_request(events_of(request))
    assert (asked.actor, asked.reason, asked.data["requested"]) == (
        str(liaison),
        "For the conference.",
        "urgent",
    )
    set_priority(
        request=now(request), by=approver, at=LATER, reason="Agreed.", priority_class="urgent"
    )
    assert open_class_request(events_of(request)) is None


@pytest.fixture
def queued(make):
    return make(S.QUEUED)


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    moves=st.lists(
        st.tuples(
            st.integers(-3, 5), st.sampled_from([None, "low", "normal", "high"]), st.booleans()
        ),
        min_size=1,
        max_size=5,
    )
)
def test_deadline_never_moves_earlier(queued, liaison, approver, moves):
    with transaction.atomic():
        for days, name, answers in moves:
            before = now(queued).deadline
            try:
                deadline = before + timedelta(days=days)
                postpone(now(queued), liaison, deadline=deadline, requested_class=name)
            except DomainError:
                assert now(queued).deadline == before
            else:
                assert now(queued).deadline == deadline >= before
            if answers:
                set_priority(
                    request=now(queued), by=approver, at=LATER, reason="-", priority_class="high"
                )
                assert open_class_request(events_of(queued)) is None
            assert now(queued).state == S.QUEUED
        transaction.set_rollback(True)


def test_late_line_of_your_turn_leads_to_a_form_that_ends_it(make, liaison, approver, browse):
    request = make(S.QUEUED)
    Attention.objects.create(
        request=request, kind=AttentionKind.LATE, since=AT, words="expected after its deadline"
    )
    client, deadline = browse(liaison), request.deadline + WEEK
    line = 'href="{url}?do=reschedule#do" aria-label="Deadline or class…: {key}"'
    for address in ("/requests/inbox/", "/"):
        text = text_of(client.get(address))
        assert line.format(url=request.get_absolute_url(), key=request.key) in text
    text = client.get(f"{request.get_absolute_url()}?do=reschedule").content.decode()
    assert 'name="deadline"' in text
    sent = {
        "deadline": deadline.isoformat(),
        "requested_class": "urgent",
        "reason": "Later freeze.",
        "version": "1",
    }
    stale = client.post(f"{request.get_absolute_url()}reschedule/", sent)
    assert now(request).deadline != deadline, stale
    sent["version"] = str(now(request).version)
    assert client.post(f"{request.get_absolute_url()}reschedule/", sent).status_code == 302
    assert now(request).deadline == deadline

    text = browse(approver).get(f"{request.get_absolute_url()}?do=priority").content.decode()
    assert f"urgent by {liaison}" in text
    assert '<option value="urgent" selected>' in text
    # No priority brings the first in the queue forward.
    assert "?do=start#do" in browse(approver).get("/requests/inbox/").content.decode()


def test_page_does_not_say_late_once_the_deadline_is_later(make, liaison, browse):
    request = make()
    before = timezone.localdate() - timedelta(days=1)
    reason = f"its deadline {before:%-d %b %Y} has passed"
    Request.objects.filter(pk=request.pk).update(deadline=before)
    Attention.objects.create(request=request, kind=AttentionKind.LATE, since=AT, words=reason)
    assert capfirst(reason) in text_of(browse(liaison).get(request.get_absolute_url()))
    reschedule(
        request=now(request),
        by=liaison,
        at=LATER,
        deadline=timezone.localdate() + 50 * WEEK,
        reason="Moved.",
    )
    text = text_of(browse(liaison).get(request.get_absolute_url()))
    assert capfirst(reason) not in text
    after = timezone.localdate() + 50 * WEEK
    moved = f"{before:%-d %b %Y} → {after:%-d %b %Y}"
    assert f"edited the request, deadline {moved}: <q>Moved.</q>" in text


def test_problem_shows_in_the_form(make, liaison, browse):
    request = make()
    answer = browse(liaison).post(f"{request.get_absolute_url()}reschedule/", {"reason": "x"})
    assert answer.status_code == 400
    assert "Choose a later deadline, a class, or both." in answer.content.decode()


#: The states in which a request can need attention of a kind.
ATTENTION = {
    None: [S.DRAFT, S.AWAITING_APPROVAL, S.CHANGES_REQUESTED, S.ON_HOLD, S.DATA_QUALITY],
    AttentionKind.STUCK: [S.TESTING, S.RUNNING, S.ON_HOLD],
    AttentionKind.TEST_FAILED: [S.QUEUED, S.ON_HOLD],
    AttentionKind.IDLE: [S.QUEUED, S.TESTING, S.RUNNING, S.COMPLETING],
    AttentionKind.LATE: [state for state in S if state not in CLOSED],
}
WAITS = [(kind, state) for kind, states in ATTENTION.items() for state in states]


@pytest.mark.parametrize(("kind", "state"), WAITS)
def test_button_of_every_wait_opens(kind, state, make, liaison, approver, browse):
    request = make(state)
    if kind:
        Attention.objects.create(request=request, kind=kind, since=AT, words="x")
    at = timezone.now()
    for user in (liaison, approver):
        if not waiting_for(user, at).filter(pk=request.pk).exists():
            continue
        (item,) = inbox_items([now(request)], user, at)
        address, _, place = item.action.url.partition("#")
        answer = browse(user).get(address)
        assert (answer.status_code, bool(item.action.label)) == (200, True)
        if place:
            assert f'id="{place}"' in answer.content.decode()


@pytest.mark.parametrize(
    ("state", "button"), [(S.QUEUED, "Start production…"), (S.RUNNING, "Open submissions")]
)
def test_button_of_an_idle_request_starts_it_if_it_is_queued(state, button, make, approver):
    request = make(state)
    Attention.objects.create(request=request, kind=AttentionKind.IDLE, since=AT, words="x")
    (item,) = inbox_items([now(request)], approver, timezone.now())
    assert item.action.label == button
