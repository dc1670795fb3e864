"""The back office: nothing to edit, and actions that call the services."""

import pytest

from apps.accounts.domain.roles import grant_role
from apps.accounts.enums import Role
from apps.production.models import Request, RequestCounter
from tests.factories.requests import AT, draft, request_in

LIST = "/admin/production/request/"


@pytest.fixture
def signing_admin(admin):
    """An admin who is an approver as well."""
    grant_role(user=admin, role=Role.APPROVER, experiment=None, by="test", at=AT)
    return admin


@pytest.fixture
def submitted(nova, liaison, approver):
    return request_in("awaiting_approval", by=liaison, experiment=nova, approver=approver)


def act(client, action, *requests, **more):
    data = {"action": action, "_selected_action": [r.pk for r in requests], **more}
    return client.post(LIST, data, follow=True)


def test_pages_are_shown_and_nothing_can_be_edited(nova, submitted, admin, browse):
    client = browse(admin)
    assert client.get(LIST).status_code == 200
    page = client.get(f"{LIST}{submitted.pk}/change/").content.decode()
    assert "simulation.fcl" in page
    assert 'name="state"' not in page
    assert 'name="_save"' not in page
    assert client.get(f"{LIST}add/").status_code == 403
    assert client.post(f"{LIST}{submitted.pk}/change/", {"state": "approved"}).status_code == 403
    counter = RequestCounter.objects.get()
    assert client.get("/admin/production/requestcounter/").status_code == 200
    assert str(counter) == f"{nova.pk}: 1"


def test_action_asks_for_a_reason_first(submitted, signing_admin, browse):
    page = act(browse(signing_admin), "reject", submitted)
    assert '<textarea id="id_reason"' in page.content.decode()
    assert Request.objects.get().state == "awaiting_approval"


@pytest.mark.parametrize(
    ("action", "state"),
    [("approve", "queued"), ("request_changes", "changes_requested"), ("reject", "rejected")],
)
def test_action_moves_by_the_service(action, state, submitted, signing_admin, browse):
    page = act(browse(signing_admin), action, submitted, reason="seen")
    stored = Request.objects.get()
    assert stored.state == state
    assert f"NOVA-0001 is now “{stored.get_state_display()}”." in page.content.decode()


def test_action_tells_what_the_service_refuses(nova, liaison, submitted, signing_admin, browse):
    other = draft(liaison, nova)
    page = act(browse(signing_admin), "approve", submitted, other, reason="").content.decode()
    assert "NOVA-0001 is now “queued”." in page
    assert "“Approve” is not possible: NOVA-0002 is “draft”." in page
    page = act(browse(signing_admin), "cancel", other, reason="x").content.decode()
    assert "NOVA-0002: Only liaisons of NOvA and approvers can do this." in page


def test_action_without_needed_reason_is_told(submitted, signing_admin, browse):
    page = act(browse(signing_admin), "reject", submitted, reason=" ").content.decode()
    assert "NOVA-0001: reason: Enter a reason" in page
    assert Request.objects.get().state == "awaiting_approval"


def test_admin_who_is_no_approver_is_refused(submitted, admin, browse):
    page = act(browse(admin), "approve", submitted, reason="x").content.decode()
    assert "Only approvers can do this." in page
