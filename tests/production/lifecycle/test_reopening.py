"""A rejected request is reopened: who can, what starts over, and what others use by now."""

from copy import copy
from datetime import timedelta
from importlib.metadata import EntryPoint

import pytest

from apps.core.domain.events import events_of
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed, StaleState
from apps.notifications.models import Notification
from apps.production.domain.approvals.requirements import approval_of
from apps.production.domain.lifecycle.moves import (
    MOVE_FUNCTIONS,
    approve_request,
    check_request,
    moves_for,
    reopen_request,
)
from apps.production.domain.lifecycle.reopening import REOPENING_STEPS
from apps.production.enums import CLOSED, RequestState, Verb
from apps.production.models import Request, Signature
from apps.production.tasks import check_waiting
from tests.factories import approvals
from tests.factories.people import person
from tests.factories.requests import AT, request_in, stage
from tests.factories.workflows import monte_carlo
from tests.notifications.told import deliver

LATER = AT + timedelta(days=1)
WHY = "Rejected by mistake: it was meant for NOVA-0002."


@pytest.fixture
def rejected(nova, liaison, approver):
    return request_in("rejected", by=liaison, experiment=nova, approver=approver)


@pytest.fixture
def convener(nova):
    return person("convener", ("shifter", nova))


def reopen(request, by, **fields):
    current = Request.objects.get(pk=request.pk)
    return reopen_request(request=current, by=by, at=LATER, **{"reason": WHY} | fields)


def test_a_reopened_request_is_open_again_and_checked(rejected, approver, liaison):
    assert (rejected.closed_at is None, rejected.closed_by) == (False, approver)
    version = rejected.version
    reopened = reopen(rejected, approver)
    assert (reopened.state, reopened.version) == ("submitted", version + 1)
    stored = Request.objects.get(pk=rejected.pk)
    assert (stored.closed_at, stored.closed_by) == (None, None)
    assert (stored.submitted_by, stored.submitted_at) == (liaison, rejected.submitted_at)
    event = events_of(stored).last()
    assert (event.kind, event.actor, event.reason) == ("request.reopen", approver.username, WHY)
    assert (event.old, event.new) == ("rejected", "submitted")
    check_waiting()
    stored.refresh_from_db()
    assert stored.state == "awaiting_approval"
    assert approve_request(request=stored, by=approver, at=LATER).state == "queued"


def test_it_can_be_rejected_and_reopened_again(rejected, approver, second_approver):
    for by in (second_approver, approver):
        reopened = reopen(rejected, by)
        check_request(request=reopened, at=LATER)
        MOVE_FUNCTIONS[Verb.REJECT](request=reopened, by=approver, at=LATER, reason="no")
        assert (reopened.state, reopened.closed_at) == ("rejected", LATER)


def test_required_signatures_start_over(nova, liaison, approver, second_approver, convener):
    physics = approvals.group("Physics", convener, experiment=nova)
    approvals.rule(physics, approvals.group("OPG", role="approver"), experiment=nova)
    request = request_in("awaiting_approval", by=liaison, experiment=nova, approver=approver)
    approve_request(request=request, by=approver, at=AT)
    MOVE_FUNCTIONS[Verb.REJECT](request=request, by=convener, at=AT, reason="no")
    assert Signature.objects.filter(withdrawn_at=None).count() == 1

    reopened = reopen(request, second_approver)
    signature = Signature.objects.get()
    assert (signature.withdrawn_at, signature.withdrawn_by) == (LATER, second_approver.username)
    assert signature.withdrawn_reason == "The request was reopened."
    assert events_of(reopened).last().data["withdrawn"] == 1
    check_request(request=reopened, at=LATER)
    slots = approval_of(reopened, approver, LATER).missing
    assert [slot.name for slot in slots] == ["OPG", "Physics"]
    approve_request(request=reopened, by=approver, at=LATER)
    assert reopened.state == "awaiting_approval", "Physics has to sign, too"
    assert approve_request(request=reopened, by=convener, at=LATER).state == "queued"


@pytest.mark.parametrize("role", ["liaison", "other_liaison", "shifter", "admin", "both"])
def test_only_who_could_reject_it_reopens_it(role, rejected, nova, request):
    if role == "both":
        user = request.getfixturevalue("both")
        Request.objects.filter(pk=rejected.pk).update(editor_ids=[user.pk])
    else:
        user = request.getfixturevalue(role)
    fresh = Request.objects.get(pk=rejected.pk)
    with pytest.raises(NotAllowed):
        reopen(fresh, user)
    assert Verb.REOPEN not in {step.verb for step in moves_for(user, fresh)}
    assert Request.objects.get(pk=rejected.pk).state == "rejected"


def test_any_approver_and_member_of_a_required_group_reopens_it(
    rejected, nova, second_approver, convener
):
    approvals.rule(approvals.group("Physics", convener, experiment=nova), experiment=nova)
    for user in (second_approver, convener):
        assert [step.verb for step in moves_for(user, rejected)] == [Verb.REOPEN]
    assert reopen(rejected, convener).state == "submitted"


@pytest.mark.parametrize("state", sorted(CLOSED - {RequestState.REJECTED}))
def test_other_closed_requests_stay_closed(state, nova, liaison, approver):
    request = request_in(state, by=liaison, experiment=nova, approver=approver)
    with pytest.raises(InvalidTransition, match="“Reopen” is not possible"):
        reopen(request, approver)


def test_a_reason_and_the_version_that_was_seen_are_needed(rejected, approver, second_approver):
    with pytest.raises(InvalidFields):
        reopen(rejected, approver, reason=" ")
    with pytest.raises(StaleState):
        reopen(rejected, approver, version=rejected.version - 1)
    stale = copy(rejected)
    reopen(rejected, second_approver)
    with pytest.raises(StaleState, match="changed by opg-two in the meantime"):
        reopen_request(request=stale, by=approver, at=LATER, reason=WHY)


def test_run_numbers_that_another_request_uses_by_now_return_it(nova, liaison, approver):
    people = {"by": liaison, "experiment": nova, "approver": approver}
    rejected = request_in("rejected", **people, **vars(monte_carlo()))
    other = request_in("queued", **people, **vars(monte_carlo(title="Another one")))
    reopened = reopen(rejected, approver)
    check_request(request=reopened, at=LATER)
    event = events_of(reopened).last()
    assert (reopened.state, event.kind) == ("changes_requested", "request.return")
    assert f"{other} already uses runs 900001-904000" in event.reason


def test_a_dataset_that_another_request_writes_by_now_is_a_warning(nova, liaison, approver):
    stages = (stage("generation", output_dataset="nova.mc.gen"),)
    people = {"by": liaison, "experiment": nova, "approver": approver}
    rejected = request_in("rejected", **people, stages=stages)
    other = request_in("queued", **people, stages=stages, title="Another one")
    reopened = reopen(rejected, approver)
    check_request(request=reopened, at=LATER)
    passed = events_of(reopened).last()
    assert (reopened.state, passed.kind) == ("awaiting_approval", "request.pass")
    messages = [warning["message"] for warning in passed.data["checks"]]
    assert f"{other} writes to this dataset. If you add to it, state that in the purpose." in (
        messages
    )


def test_a_plugin_that_cannot_be_loaded_is_in_the_way(rejected, approver, monkeypatch):
    broken = EntryPoint("broken", "no_such_module:step", REOPENING_STEPS.group)
    monkeypatch.setattr(REOPENING_STEPS, "problems", {})
    monkeypatch.setitem(REOPENING_STEPS._found, "broken", broken)
    with pytest.raises(InvalidTransition, match="“broken” cannot be loaded"):
        reopen(rejected, approver)
    assert Request.objects.get(pk=rejected.pk).state == "rejected"


def test_liaisons_are_notified_with_the_reason(rejected, approver, liaison, browse):
    deliver()
    reopen(rejected, approver)
    deliver()
    notifications = Notification.objects.filter(event__kind="request.reopen")
    assert [(row.user, row.group) for row in notifications] == [(liaison, "outcome")]
    page = browse(liaison).get("/notifications/").content.decode()
    assert "was reopened" in page
    assert WHY in page


def test_the_page_offers_it_to_approvers_alone(rejected, approver, liaison, shifter, admin, browse):
    page = browse(approver).get(f"/requests/{rejected.key}/").content.decode()
    assert "Reopen…" in page
    assert 'class="button small main"' not in page
    for user in (liaison, shifter, admin):
        assert "Reopen…" not in browse(user).get(f"/requests/{rejected.key}/").content.decode()
    form = browse(approver).get(f"/requests/{rejected.key}/?do=reopen").content.decode()
    assert "All required signatures start over." in form


def test_the_page_reopens_it_and_says_who_did_and_why(rejected, approver, liaison, browse):
    url = f"/requests/{rejected.key}/reopen/"
    assert browse(liaison).post(url, {"reason": WHY}).status_code == 403
    without = browse(approver).post(url, {"reason": ""})
    assert without.status_code == 400
    assert Request.objects.get().state == "rejected"
    sent = {"reason": WHY, "version": rejected.version}
    answer = browse(approver).post(url, sent, follow=True).content.decode()
    assert "NOVA-0001 is now “submitted”." in answer
    page = browse(liaison).get(f"/requests/{rejected.key}/").content.decode()
    assert "reopened the request, which starts checks and signatures over" in page
    assert WHY in page
    assert "Closed by" not in page


def test_the_api_reopens_it(rejected, approver, liaison, other_liaison, api):
    url = f"/api/v1/requests/{rejected.key}/reopen/"
    for user, status in ((liaison, 403), (other_liaison, 404)):
        assert api(user).post(url, {"reason": WHY}, format="json").status_code == status
    without = api(approver).post(url, {}, format="json")
    assert (without.status_code, set(without.json())) == (400, {"reason"})
    made = api(approver).post(url, {"reason": WHY}, format="json")
    assert (made.status_code, made.json()["state"]) == (200, "submitted")
    again = api(approver).post(url, {"reason": WHY}, format="json")
    assert (again.status_code, again.json()) == (
        409,
        {"detail": "“Reopen” is not possible: NOVA-0001 is “submitted”."},
    )
