"""Whoever wrote any revision of a request counts as its requester; delegations are few,
and of something.
"""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction

from apps.core.errors import InvalidFields, NotAllowed
from apps.production.domain.approvals.delegations import delegate, revoke_delegation
from apps.production.domain.approvals.inbox import rights_to_sign
from apps.production.domain.approvals.requirements import approval_facts, possible_signers
from apps.production.domain.content.stages import content_of
from apps.production.domain.lifecycle.moves import (
    approve_request,
    check_request,
    set_priority,
    submit_request,
)
from apps.production.domain.lineage.links import combine_requests, split_request
from apps.production.domain.lineage.splits import SplitUnit
from apps.production.domain.requests.drafts import save_draft
from apps.production.models import Delegation, Request, Signature
from apps.production.permissions import is_requester
from tests.factories import approvals
from tests.factories.people import person
from tests.factories.requests import AT, content, draft, request_in

WEEK = timedelta(days=7)


def edit(request, by, **changes):
    return save_draft(
        request=request,
        content=replace(content_of(request), **changes),
        version=request.version,
        by=by,
        at=AT,
    )


def submitted(request, by):
    submit_request(request=request, by=by, at=AT)
    request = Request.objects.get(pk=request.pk)
    return check_request(request=request, at=AT) if request.state == "submitted" else request


@pytest.fixture
def edited(nova, liaison, both):
    """A request that a liaison wrote and submitted;
    one revision of its draft is by a liaison who is an approver.
    """
    made = draft(liaison, nova)
    edit(made, both, title="Another title for this request")
    edit(made, liaison, title="A title of its author again")
    return submitted(made, liaison)


def test_editor_of_a_draft_cannot_approve_it(edited, both, approver, second_approver):
    assert is_requester(both, edited)
    with pytest.raises(NotAllowed, match="You created, edited or submitted"):
        approve_request(request=edited, by=both, at=AT)
    assert edited.pk not in rights_to_sign(both, AT)
    assert both.username not in {
        one.user.username for one in possible_signers([None], approval_facts(edited), AT)[None]
    }
    with pytest.raises(NotAllowed):
        set_priority(request=edited, by=both, at=AT, reason="mine", priority=9)
    assert approve_request(request=edited, by=approver, at=AT).state == "queued"


def test_no_one_signs_on_behalf_of_an_editor(edited, both, shifter):
    delegate(by=both, to_user=shifter, from_at=AT, until_at=AT + WEEK, at=AT)
    with pytest.raises(NotAllowed):
        approve_request(request=edited, by=shifter, at=AT)


def test_signer_who_edits_loses_the_signature(nova, liaison, both, approver):
    group = approvals.group(
        "Physics", both, person("physicist", ("shifter", nova)), experiment=nova
    )
    approvals.rule(group, approvals.group("OPG", role="approver"), experiment=nova)
    waiting = request_in("awaiting_approval", by=liaison, experiment=nova, approver=approver)
    approve_request(request=waiting, by=both, at=AT, group="Physics")
    edit(waiting, both, title="A better title, which needs no signatures")
    assert Signature.objects.get().withdrawn_at == AT
    assert is_requester(both, Request.objects.get(pk=waiting.pk))


def test_signer_cannot_edit_what_is_approved(nova, liaison, both):
    queued = request_in("queued", by=liaison, experiment=nova, approver=both)
    with pytest.raises(NotAllowed, match="You signed NOVA-0001"):
        edit(queued, both, title="A title that nobody else approves")
    with pytest.raises(IntegrityError), transaction.atomic():
        Request.objects.filter(pk=queued.pk).update(editor_ids=[both.pk])


def test_approver_who_changes_it_materially_cannot_approve_it_again(nova, liaison, both, approver):
    queued = request_in("queued", by=liaison, experiment=nova, approver=both)
    changed = edit(queued, both, stages=content().stages[:1])
    assert (changed.state, changed.approved_by, is_requester(both, changed)) == (
        "submitted",
        None,
        True,
    )
    check_request(request=changed, at=AT)
    with pytest.raises(NotAllowed):
        approve_request(request=changed, by=both, at=AT)
    assert approve_request(request=changed, by=approver, at=AT).state == "queued"


def test_parts_and_combinations_keep_the_editors(nova, edited, both, liaison):
    parts = split_request(
        request=edited,
        by_what=SplitUnit.EVENTS,
        size=10_000_000,
        by=liaison,
        at=AT,
        reason="too large",
    )
    assert all(is_requester(both, part) for part in parts)
    other = combine_requests(requests=parts, by=liaison, at=AT, reason="small enough")
    assert is_requester(both, other)


def test_at_most_twenty_delegations_are_active(approver, second_approver):
    def hand_over(from_at=AT):
        return delegate(
            by=approver, to_user=second_approver, from_at=from_at, until_at=AT + WEEK, at=AT
        )

    made = [hand_over(AT + timedelta(hours=number)) for number in range(20)]
    with pytest.raises(InvalidFields, match="20 delegations"):
        hand_over()
    revoke_delegation(delegation=made[0], by=approver, at=AT)
    hand_over()
    assert Delegation.objects.filter(revoked_at=None).count() == 20


def test_only_what_one_has_is_handed_over(nova, liaison, approver, convener, second_approver):
    group = approvals.group("Physics", convener, experiment=nova)
    span = {"from_at": AT, "until_at": AT + WEEK, "at": AT}
    with pytest.raises(NotAllowed, match="nothing to delegate"):
        delegate(by=liaison, to_user=approver, **span)
    with pytest.raises(InvalidFields, match="You are not in this group"):
        delegate(by=approver, to_user=second_approver, group=group, **span)
    with pytest.raises(InvalidFields, match="You are not an approver"):
        delegate(by=convener, to_user=approver, role="approver", **span)
    assert delegate(by=convener, to_user=approver, group=group, **span).group == group
    assert delegate(by=convener, to_user=approver, **span).group is None


@pytest.fixture
def convener(nova):
    return person("convener", ("shifter", nova))


def test_author_alone_is_no_bar_for_others(nova, liaison, both, approver):
    made = submitted(draft(liaison, nova, stages=content().stages), liaison)
    assert not is_requester(both, made)
    assert approve_request(request=made, by=both, at=AT).state == "queued"
