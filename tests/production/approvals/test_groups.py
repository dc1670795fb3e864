"""Groups of approval that are used no more: retired, not deleted,
with what comes of it said before.
"""

from datetime import timedelta

import pytest

from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed
from apps.core.models import Event
from apps.production.domain.approvals.delegations import delegate
from apps.production.domain.approvals.groups import plan_retirement, retire_group
from apps.production.models import ApprovalGroup, ApprovalRule, Delegation
from tests.factories import approvals
from tests.factories.people import person
from tests.factories.requests import AT


@pytest.fixture
def group(nova, approver, second_approver):
    group = approvals.group("Physics of NOvA", approver, experiment=nova)
    for others in ((), (approvals.group("OPG", role="approver"),)):
        approvals.rule(group, *others, experiment=nova)
    delegate(
        by=approver,
        to_user=second_approver,
        from_at=AT,
        until_at=AT + timedelta(days=3),
        at=AT,
        group=group,
    )
    return group


@pytest.fixture(autouse=True)
def today(monkeypatch):
    monkeypatch.setattr("django.utils.timezone.now", lambda: AT)


def test_a_retired_group_signs_no_more_and_its_history_stays(group, admin):
    told = retire_group(group=group, by=admin, at=AT, reason="The convener has left.")
    assert (len(told.rules), len(told.emptied), len(told.delegations)) == (2, 1, 1)
    assert "One approver is enough" in told.text
    assert [rule.groups.count() for rule in ApprovalRule.objects.order_by("pk")] == [0, 1]
    handed = Delegation.objects.get()
    assert (handed.group, handed.revoked_at, handed.revoked_by) == (group, AT, str(admin))
    group.refresh_from_db()
    assert (group.members.count(), group.role, group.retired_at) == (0, "", AT)
    assert plan_retirement(group, AT).text == "no one signs for it any more."
    event = Event.objects.get(kind="approval_group.retired")
    assert (event.reason, len(event.data["rules"])) == ("The convener has left.", 2)
    with pytest.raises(InvalidTransition, match="already retired"):
        retire_group(group=group, by=admin, at=AT, reason="Twice.")


def test_it_needs_a_reason(group, admin):
    with pytest.raises(InvalidFields):
        retire_group(group=group, by=admin, at=AT, reason=" ")
    assert Delegation.objects.get().revoked_at is None


def test_the_back_office_refuses_to_delete_it_and_offers_to_retire_it(group, admin, browse):
    client, path = browse(admin), "/admin/production/approvalgroup/"
    page = client.get(f"{path}{group.pk}/delete/").content.decode()
    assert "Use the action “Retire…” of the list instead" in page
    client.post(f"{path}{group.pk}/delete/", {"post": "yes"})
    sent = {"action": "retire", "_selected_action": [group.pk]}
    page = client.post(path, sent).content.decode()
    assert "These delegations end: " in page
    assert ApprovalGroup.objects.get(pk=group.pk).retired_at is None
    page = client.post(path, sent | {"reason": "Left."}, follow=True).content.decode()
    assert "no one signs for it any more" in page
    assert ApprovalGroup.objects.get(pk=group.pk).retired_at == AT
    choices = client.get("/admin/production/approvalrule/add/").content.decode()
    assert "Physics of NOvA" not in choices
    assert "OPG" in choices


def test_one_that_was_never_used_is_deleted(admin, browse, nova):
    group = approvals.group("By mistake")
    browse(admin).post(f"/admin/production/approvalgroup/{group.pk}/delete/", {"post": "yes"})
    assert not ApprovalGroup.objects.exists()


def test_who_may_not_change_groups_does_not_retire_them(group, browse):
    staff = person("staff-only")
    staff.is_staff = True
    staff.save()
    sent = {"action": "retire", "_selected_action": [group.pk], "reason": "Because."}
    assert browse(staff).post("/admin/production/approvalgroup/", sent).status_code == 403
    with pytest.raises(NotAllowed):
        retire_group(group=group, by=staff, at=AT, reason="Because.")
