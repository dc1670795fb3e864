"""No sequence of verbs by any people breaks what must always hold."""

from contextlib import suppress
from datetime import timedelta
from itertools import pairwise

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.core.domain.events import events_of
from apps.core.errors import DomainError, StaleState
from apps.production.domain.approvals.delegations import delegate, delegations_of, revoke_delegation
from apps.production.domain.approvals.requirements import slots_of
from apps.production.domain.content.changes import review_changes
from apps.production.domain.content.serialization import read_plain
from apps.production.domain.content.stages import content_of
from apps.production.domain.lifecycle.moves import (
    MOVE_FUNCTIONS,
    approve_request,
    check_request,
    set_priority,
    submit_request,
    supersede_request,
    withdraw_signature,
)
from apps.production.domain.lifecycle.transitions import MOVES
from apps.production.domain.requests.drafts import save_draft
from apps.production.enums import CHANGEABLE, CLOSED, RequestState, Verb
from apps.production.models import Request
from tests.factories import approvals
from tests.factories.people import person
from tests.factories.requests import AT, content, draft, stage

ROLES = ["liaison", "liaison_two", "both", "both_two", "approver", "shifter", "admin"]
ACTIONS = [
    *MOVE_FUNCTIONS,
    "check",
    "save",
    "change",
    "set_priority",
    "sign_one",
    "withdraw",
    "delegate",
    "revoke",
]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(ACTIONS),
        st.sampled_from(ROLES),
        st.sampled_from(["", "because"]),
        st.booleans(),
    ),
    max_size=25,
)


@pytest.fixture
def cast(nova, liaison, approver, shifter, admin, both):
    return {
        "liaison": liaison,
        "liaison_two": person("nova-two", ("liaison", nova)),
        "both": both,
        "both_two": person("two-hats-two", ("liaison", nova), ("approver", None)),
        "approver": approver,
        "shifter": shifter,
        "admin": admin,
    }


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(maker=st.sampled_from(["liaison", "both"]), steps=STEPS, groups=st.booleans())
def test_no_sequence_breaks_an_invariant(nova, cast, maker, steps, groups):
    with transaction.atomic():
        if groups:
            ask_for_groups(cast)
        draft(cast[maker], nova)
        obj = draft(cast[maker], nova)
        stale = Request.objects.get(pk=obj.pk)
        before, done = Request.objects.get(pk=obj.pk), 1
        for number, (action, role, reason, is_stale) in enumerate(steps):
            if action in {"delegate", "revoke"}:
                hand_over(action, cast[role], cast, AT + timedelta(minutes=number))
                continue
            target = stale if is_stale else Request.objects.get(pk=obj.pk)
            done += act(target, action, cast[role], reason, number)
            before = check(before, obj.pk, done)
        transaction.set_rollback(True)


def ask_for_groups(cast) -> None:
    """Let two groups sign: the approvers, and one of the shifter and somebody who is a requester
    at times.
    """
    approvers = approvals.group("OPG", role="approver")
    others = approvals.group("Physics", cast["shifter"], cast["both"], cast["liaison_two"])
    approvals.rule(approvers, others)


def hand_over(action: str, by, cast, at) -> None:
    if action == "revoke":
        for given in delegations_of(by):
            revoke_delegation(delegation=given, by=by, at=at)
    for other in cast.values() if action == "delegate" else ():
        with suppress(DomainError):  # one's own, nothing to delegate, or too many
            delegate(by=by, to_user=other, from_at=at, until_at=at + timedelta(minutes=7), at=at)


def act(target: Request, action: str, by, reason: str, number: int) -> int:
    """Try one action; return whether it was done."""
    at, version = AT + timedelta(minutes=number), target.version
    try:
        with transaction.atomic():
            if action == "save":
                new = content(title=f"Title {number}")
                save_draft(request=target, content=new, version=version, by=by, at=at)
            elif action == "change":
                new = content(stages=(stage("generation", jobs=number + 1),))
                save_draft(request=target, content=new, version=version, by=by, at=at)
            elif action == "withdraw":
                signature = target.signatures.filter(withdrawn_at=None).first()
                number_of = signature.pk if signature else 0
                withdraw_signature(request=target, signature=number_of, by=by, at=at, reason=reason)
            elif action == "set_priority":
                set_priority(request=target, priority=number, by=by, at=at, reason=reason)
            elif action == "check":
                check_request(request=target, at=at)
                return 2
            elif action == Verb.SUPERSEDE:
                successor = target.experiment.requests.exclude(pk=target.pk).first()
                supersede_request(request=target, by=by, at=at, reason=reason, successor=successor)
            elif action in {Verb.APPROVE, "sign_one"}:
                group = "Physics" if action == "sign_one" else ""
                signed = approve_request(request=target, by=by, at=at, reason=reason, group=group)
                return 2 if signed.state == RequestState.QUEUED else 1
            else:
                MOVE_FUNCTIONS[action](request=target, by=by, at=at, reason=reason)
    except DomainError:
        return 0
    return 1


def check(before: Request, pk: int, done: int) -> Request:
    """Check what the request is now against what it was; return it."""
    after = Request.objects.get(pk=pk)
    events = list(events_of(after))
    assert len(events) == done == after.version
    is_reopened = (before.state, after.state) == (RequestState.REJECTED, RequestState.SUBMITTED)
    if before.state in CLOSED and after.state != RequestState.SUPERSEDED and not is_reopened:
        assert after.version == before.version
    assert (after.approved_at is None) == (after.approved_by_id is None)
    assert after.approved_by_id not in after.requester_ids
    passed = [event.kind for event in events if event.kind in {"request.approve", "request.change"}]
    assert (after.approved_at is not None) == (passed[-1:] == ["request.approve"])
    check_signatures(before, after)
    assert (after.held_from != "") == (after.state == RequestState.ON_HOLD)
    assert (after.superseded_by_id is not None) == (after.state == RequestState.SUPERSEDED)
    assert (after.closed_at is not None) == (after.state in CLOSED)
    assert (after.submitted_at is not None) == any(
        event.kind == "request.submit" for event in events
    )
    path = [event.new for event in events if event.new in RequestState.values]
    assert path[-1] == after.state
    assert all(new in MOVES[old] for old, new in pairwise(path))
    return after


def check_signatures(before: Request, after: Request) -> None:
    """What holds was signed as it is, by others than the requesters;
    an approved request has all it needs.
    """
    live = list(after.signatures.filter(withdrawn_at=None))
    assert not {pk for one in live for pk in (one.by_id, one.for_user_id)} & after.requester_ids
    assert len({one.group_id for one in live}) == len(live)
    now = content_of(after)
    for one in live:
        judged = review_changes(RequestState.DRAFT, read_plain(one.content, now.workflow)[0], now)
        assert judged.material == []
    if after.state == RequestState.QUEUED:
        assert all(slot.signature for slot in slots_of(after))
    starts_over = {*CHANGEABLE, RequestState.REJECTED}
    if after.state == RequestState.SUBMITTED and before.state in starts_over:
        assert live == []


REVIEWS = st.lists(
    st.tuples(
        st.sampled_from([Verb.REJECT, Verb.REOPEN, "check", "sign_one", Verb.CANCEL]),
        st.sampled_from(["approver", "shifter", "both_two", "liaison"]),
        st.just("because"),
        st.booleans(),
    ),
    min_size=4,
    max_size=25,
)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=REVIEWS, groups=st.booleans())
def test_no_sequence_of_reviews_breaks_an_invariant(nova, cast, steps, groups):
    """Most sequences of all verbs never reject: these begin with a request that was rejected."""
    with transaction.atomic():
        if groups:
            ask_for_groups(cast)
        obj = draft(cast["liaison"], nova)
        stale = Request.objects.get(pk=obj.pk)
        submit_request(request=obj, by=cast["liaison"], at=AT)
        done = 2
        signed = [("check", "approver"), ("sign_one", "shifter"), (Verb.REJECT, "approver")]
        first = [(action, role, "because", False) for action, role in signed]
        before = Request.objects.get(pk=obj.pk)
        for number, (action, role, reason, is_stale) in enumerate([*first, *steps]):
            target = stale if is_stale else Request.objects.get(pk=obj.pk)
            done += act(target, action, cast[role], reason, number)
            before = check(before, obj.pk, done)
            if number == len(first) - 1:
                assert before.state == RequestState.REJECTED
        transaction.set_rollback(True)


def test_object_read_before_another_move_is_stale(nova, liaison, approver, both):
    obj = draft(liaison, nova)
    seen = Request.objects.get(pk=obj.pk)
    submit_request(request=obj, by=liaison, at=AT)
    with pytest.raises(StaleState):
        MOVE_FUNCTIONS[Verb.CANCEL](request=seen, by=both, at=AT)
