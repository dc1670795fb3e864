"""What admins give in the back office: logins on the clusters, which is told, and roles."""

import re

import pytest
from django.urls import reverse

from apps.accounts.models import ClusterLogin, Membership
from apps.accounts.permissions import logins_of
from apps.core.models import Event
from tests.factories import people
from tests.pages import text_of

ADD_ROLE = "/admin/accounts/membership/add/"


def test_admin_gives_a_login(client, admin):
    ana = people.person("ana.smith")
    client.force_login(admin)
    address = reverse("admin:accounts_user_change", args=[ana.pk])
    data = {
        "username": "ana.smith",
        "is_active": "on",
        "cluster_logins-TOTAL_FORMS": 1,
        "cluster_logins-INITIAL_FORMS": 0,
        "cluster_logins-0-login": "ana",
        "cluster_logins-0-cluster": "alps",
        "cluster_logins-0-user": ana.pk,
    }

    assert client.post(address, data).status_code == 302

    assert logins_of(ana) == {("ana", "alps")}
    event = Event.objects.get(kind="account.logins_changed")
    assert (event.target_id, event.data) == (str(ana.pk), {"logins": ["ana on alps"]})


def test_login_of_an_inactive_user_or_stranger_counts_for_nothing(db):
    ana = people.person("ana.smith")
    ClusterLogin.objects.create(user=ana, login="ana")
    ana.is_active = False

    assert logins_of(ana) == frozenset()
    assert logins_of(None) == frozenset()


@pytest.fixture
def client_of_admin(client, admin):
    client.force_login(admin)
    return client


def test_page_is_about_liaisons_and_lists_them(client_of_admin, liaison, shifter, nova):
    page = text_of(client_of_admin.get(f"{ADD_ROLE}?role=liaison"))
    assert "<h1>Add a liaison</h1>" in page
    holders = page.partition("Current liaisons")[2].partition("</table>")[0]
    assert liaison.username in holders
    assert str(nova) in holders
    assert shifter.username not in holders
    assert "<h1>Add an approver</h1>" in text_of(client_of_admin.get(f"{ADD_ROLE}?role=approver"))
    assert "Current" not in text_of(client_of_admin.get(f"{ADD_ROLE}?role=nobody"))


def test_forgotten_experiment_makes_no_liaison_of_all(client_of_admin):
    user = people.person("new-one")
    sent = client_of_admin.post(f"{ADD_ROLE}?role=liaison", {"user": user.pk, "role": "liaison"})
    page = text_of(sent)
    assert "<h1>Add a liaison</h1>" in page
    assert "Choose an experiment, or tick “All experiments” below." in page
    assert not user.memberships.exists()
    page = text_of(client_of_admin.post(f"{ADD_ROLE}?role=liaison", {"role": "liaison"}))
    assert "Choose a user." in page
    page = text_of(client_of_admin.post(ADD_ROLE, {"user": user.pk, "role": "approver"}))
    assert "Choose an experiment, or tick “All experiments” below." in page
    assert not user.memberships.exists()


def test_people_are_chosen_by_their_names(client_of_admin):
    ana = people.person("ana.smith")
    type(ana).objects.filter(pk=ana.pk).update(first_name="Ana", last_name="Smith")
    source = {"app_label": "accounts", "model_name": "membership", "field_name": "user"}
    offered = client_of_admin.get("/admin/autocomplete/", {**source, "term": "Ana"}).json()
    assert [result["text"] for result in offered["results"]] == ["Ana Smith (ana.smith)"]
    assert "Ana Smith (ana.smith)" in client_of_admin.get(f"{ADD_ROLE}?user={ana.pk}").text


@pytest.mark.parametrize("role", ["liaison", "approver"])
def test_role_for_one_experiment(client_of_admin, nova, role):
    user = people.person("new-one")
    values = {"user": user.pk, "role": role, "experiment": nova.pk}
    assert client_of_admin.post(ADD_ROLE, values).status_code == 302
    assert Membership.objects.get(user=user).experiment == nova
    again = text_of(client_of_admin.post(ADD_ROLE, values))
    assert "The user has this role already." in again
    both = client_of_admin.post(ADD_ROLE, {**values, "all_experiments": "on"})
    assert "Choose one experiment or all of them, not both." in text_of(both)


@pytest.mark.parametrize("role", ["liaison", "shifter"])
def test_role_for_all_experiments(client_of_admin, role):
    user = people.person("new-one")
    values = {"user": user.pk, "role": role, "all_experiments": "on"}
    sent = client_of_admin.post(ADD_ROLE, values)
    assert sent.status_code == 302
    membership = Membership.objects.get(user=user)
    assert (membership.role, membership.experiment) == (role, None)
    shown = client_of_admin.get(f"/admin/accounts/membership/{membership.pk}/change/")
    assert shown.status_code == 200


def test_page_of_a_user_shows_roles_and_whether_there_is_a_password(client_of_admin, liaison, nova):
    address = reverse("admin:accounts_user_change", args=[liaison.pk])
    liaison.set_password("a long sentence of Ana")
    liaison.save()

    page = text_of(client_of_admin.get(address))

    membership = Membership.objects.get(user=liaison)
    link = reverse("admin:accounts_membership_change", args=[membership.pk])
    assert re.search(rf'<a href="{link}" ?>Liaison of {nova}</a>', page)
    assert f'href="{ADD_ROLE}?user={liaison.pk}"' in page
    assert "Change the password<" in page

    data = {"username": liaison.username, "is_active": "on"}
    data |= {"cluster_logins-TOTAL_FORMS": 0, "cluster_logins-INITIAL_FORMS": 0}
    assert client_of_admin.post(address, data).status_code == 302
    liaison.refresh_from_db()
    assert liaison.check_password("a long sentence of Ana")


def test_page_of_a_user_without_roles_and_password_says_so(client_of_admin):
    ana = people.person("ana.smith")
    ana.set_unusable_password()
    ana.save()

    page = text_of(client_of_admin.get(reverse("admin:accounts_user_change", args=[ana.pk])))

    assert "No role: the user sees almost nothing." in page
    assert "In no way: the user has no password, and the portal has no single sign-on" in page
    assert "Set a password</a>" in page
