"""Pages of the back office that export a person's data, and remove the person."""

import json

import pytest
from django.contrib.admin.models import LogEntry
from django.urls import reverse
from django.utils import timezone

from apps.accounts.domain.api_tokens import create_token
from apps.accounts.models import Membership, User
from apps.core.domain.events import events_of
from apps.production.domain.discussion import write_comment
from apps.production.models import ApprovalGroup
from tests.factories import people
from tests.pages import text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def office(client, admin):
    client.force_login(admin)
    return client


@pytest.fixture
def ada(world, nova, at) -> User:
    """A liaison who has a token and commented, and whom an admin has edited."""
    ada = people.person("ada.l", ("liaison", nova))
    User.objects.filter(pk=ada.pk).update(first_name="Ada", email="ada@example.org")
    create_token(user=ada, name="cron job", days=30, by=ada, at=timezone.now())
    write_comment(request=world.request, by=ada, text="Please hurry.", at=at)
    ada.refresh_from_db()
    return ada


def page_of(user: User, name: str) -> str:
    return reverse(f"admin:accounts_user_{name}", args=[user.pk])


def test_export_is_a_file_and_recorded(office, admin, ada):
    page = text_of(office.get(page_of(ada, "export")))
    assert "It has no passwords and no tokens." in page
    assert not events_of(ada).filter(kind="user.exported").exists()

    answer = office.post(page_of(ada, "export"))

    assert answer["Content-Disposition"].startswith('attachment; filename="ada.l-')
    rows = [json.loads(line) for line in b"".join(answer.streaming_content).splitlines()]
    assert {"accounts.User", "production.Comment"} <= {row["table"] for row in rows}
    assert ada.password not in json.dumps(rows)
    event = events_of(ada).get(kind="user.exported")
    assert event.actor == admin.username
    assert "Exported the personal data" in text_of(office.get("/admin/admin/logentry/"))


def test_removal_says_what_goes_and_needs_the_name(office, ada):
    page = text_of(office.get(page_of(ada, "remove")))
    goes, _, stays = page.partition("What stays")
    assert "1 API token" in goes
    assert "1 role" in goes
    assert "1 comment" in stays
    assert f"former-user-{ada.pk}" in goes

    page = text_of(office.post(page_of(ada, "remove"), {"username": "ada"}))
    assert "Type the user name ada.l to confirm. Nothing was removed." in page
    assert User.objects.filter(username="ada.l", is_active=True).exists()


def test_removal_is_final_and_leaves_the_name_in_no_log(office, admin, ada):
    change = reverse("admin:accounts_user_change", args=[ada.pk])
    data = {"username": "ada.l", "email": "ada.l@example.org", "first_name": "Ada"}
    logins = {"cluster_logins-TOTAL_FORMS": 0, "cluster_logins-INITIAL_FORMS": 0}
    office.post(change, {**data, **logins})
    role = Membership.objects.get(user=ada)
    office.post(f"/admin/accounts/membership/{role.pk}/delete/", {"post": "yes"})
    assert LogEntry.objects.filter(object_repr__contains="ada.l").count() == 2

    page = text_of(office.post(page_of(ada, "remove"), {"username": "ada.l"}, follow=True))

    assert f"Removed the person: ada.l is former-user-{ada.pk} now." in page
    assert f"Removed</b> by {admin}" in page
    assert "Reactivate" not in page
    assert "Add a role" not in page
    assert 'name="first_name"' not in page
    ada.refresh_from_db()
    assert (ada.username, ada.email, ada.is_active) == (f"former-user-{ada.pk}", "", False)
    assert events_of(ada).get(kind="user.removed").actor == admin.username
    for entry in LogEntry.objects.all():
        assert "ada.l" not in f"{entry.object_repr} {entry.change_message}"
    changes = text_of(office.get("/admin/admin/logentry/"))
    assert "Removed the person." in changes
    assert "The values were removed with the person." in changes
    assert f"former-user-{ada.pk}" in changes
    assert office.get(page_of(ada, "remove")).status_code == 404
    assert office.get(page_of(ada, "export")).status_code == 404


def test_a_name_within_another_name_stays_in_the_log(office, ada):
    other = people.person("ada.lovelace")
    people_log = LogEntry.objects
    for user in (ada, other):
        people_log.log_actions(
            user_id=ada.pk, queryset=[user], action_flag=2, change_message="", single_object=True
        )
    office.post(page_of(ada, "remove"), {"username": "ada.l"})
    assert people_log.get(object_id=other.pk).object_repr == "ada.lovelace"
    assert people_log.filter(object_id=ada.pk).first().object_repr == f"former-user-{ada.pk}"


def test_admin_cannot_remove_oneself(office, admin):
    page = text_of(office.post(page_of(admin, "remove"), {"username": admin.username}))
    assert "You cannot remove yourself." in page
    admin.refresh_from_db()
    assert admin.is_active


def test_pages_are_for_admins(client, liaison, approver):
    client.force_login(approver)
    for name in ("export", "remove"):
        assert client.get(page_of(liaison, name)).status_code in (302, 403)
        assert client.post(page_of(liaison, name), {}).status_code in (302, 403)
    assert not events_of(liaison).filter(kind="user.exported").exists()


def test_removal_leaves_the_name_in_no_list_of_members(office, ada):
    other = people.person("ada.lovelace")
    members = {"members": [ada.pk, other.pk], "name": "ada.l"}
    office.post("/admin/production/approvalgroup/add/", members)
    [group] = ApprovalGroup.objects.all()
    LogEntry.objects.log_actions(
        user_id=other.pk, queryset=[group], action_flag=2, change_message="Asked ada.l."
    )
    office.post(page_of(ada, "remove"), {"username": "ada.l"})
    entry = LogEntry.objects.get(content_type__model="approvalgroup", action_flag=1)
    assert f'"former-user-{ada.pk}, ada.lovelace"' in entry.change_message
    assert '"new": "ada.l"' in entry.change_message
