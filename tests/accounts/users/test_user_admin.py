"""Users in the back office: added in one step, looked up, deactivated and let in again."""

import pytest
from axes.models import AccessAttempt
from django.urls import reverse
from django.utils import timezone

from apps.accounts.domain.api_tokens import create_token
from apps.accounts.models import ApiToken, User
from apps.core.domain.events import events_of
from tests.factories import people
from tests.pages import text_of

ADD = "/admin/accounts/user/add/"
ANA = {"username": "ana.smith", "first_name": "Ana", "last_name": "Smith", "email": "ana@x.org"}
PASSWORD = {
    "sign_in": "password",
    "password": "correct horse battery",
    "password_again": "correct horse battery",
}


@pytest.fixture
def office(client, admin):
    client.force_login(admin)
    return client


@pytest.fixture
def mail_server(settings):
    settings.EMAIL_HOST = "mail.example.org"


@pytest.fixture
def single_sign_on(settings):
    settings.OIDC_ISSUER = "https://login.example.org"
    settings.OIDC_NAME = "the lab's login"


def errors_of(page) -> dict[str, str]:
    return {name: " ".join(texts) for name, texts in page.context["adminform"].form.errors.items()}


def test_user_is_added_with_roles_and_a_password(office, admin, nova, dune):
    experiments = [nova.pk, dune.pk]
    data = {**ANA, **PASSWORD, "role": "liaison", "experiments": experiments}
    page = office.post(ADD, data, follow=True)

    ana = User.objects.get(username="ana.smith")
    assert ana.check_password("correct horse battery")
    assert (ana.get_full_name(), ana.email) == ("Ana Smith", "ana@x.org")
    assert {(held.role, held.experiment) for held in ana.memberships.all()} == {
        ("liaison", nova),
        ("liaison", dune),
    }
    assert page.redirect_chain[-1][0] == reverse("admin:accounts_user_change", args=[ana.pk])
    text = text_of(page)
    assert "User ana.smith added: Liaison of DUNE and Liaison of NOvA. Pass on" in text
    assert "<h1>Ana Smith</h1>" in text
    assert {event.kind for event in events_of(ana)} == {"user.created", "membership.granted"}
    assert set(events_of(ana).values_list("actor", flat=True)) == {admin.username}


def test_new_user_is_mailed_a_link(office, admin, mail_server):
    page = office.post(ADD, {**ANA, "sign_in": "link"}, follow=True)
    assert "A link to choose a password is on its way to ana@x.org" in text_of(page)
    ana = User.objects.get(username="ana.smith")
    event = events_of(ana).get(kind="account.password_reset_requested")
    assert event.actor == admin.username
    assert ana.has_usable_password()  # so that “Forgot your password?” sends another link


def test_new_user_of_single_sign_on_has_no_password(office, single_sign_on, nova):
    data = {**ANA, "sign_in": "single-sign-on", "role": "admin", "experiments": [nova.pk]}
    page = office.post(ADD, data, follow=True)
    assert "Ask the user to sign in by the lab&#x27;s login." in text_of(page)
    ana = User.objects.get(username="ana.smith")
    assert (ana.has_usable_password(), ana.sign_on_subject) == (False, None)


def test_ways_to_sign_in_are_those_of_the_settings(office, settings):
    page = office.get(ADD)
    assert [value for value, _ in page.context["adminform"].form["sign_in"].field.choices] == [
        "password"
    ]
    assert "The portal sends no mail (EMAIL_URL)" in text_of(page)
    settings.EMAIL_HOST = "mail.example.org"
    settings.OIDC_ISSUER = "https://login.example.org"
    form = office.get(ADD).context["adminform"].form
    assert [value for value, _ in form["sign_in"].field.choices] == [
        "link",
        "single-sign-on",
        "password",
    ]
    assert form["sign_in"].value() == "link"


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"username": "ADMIN-ONE"}, "username", "There is a user admin-one already."),
        ({"username": ""}, "username", "Enter a user name."),
        ({"sign_in": "link", "email": ""}, "email", "Enter an address: the link is sent there."),
        ({"role": "liaison"}, "experiments", "Choose the experiments of the role"),
        ({"all_experiments": "on"}, "role", "Choose a role for these experiments."),
        ({"password": "", "password_again": ""}, "password", "Enter a password"),
        ({"password_again": "other"}, "password_again", "The passwords differ."),
        (
            {"password": "ana.smith", "password_again": "ana.smith"},
            "password",
            "too similar to the username",
        ),
        (
            {"sign_in": "single-sign-on", "role": "admin", "all_experiments": "on"},
            "sign_on_subject",
            "never linked by user name",
        ),
    ],
)
def test_errors_are_beside_their_fields_and_nothing_is_saved(
    office, admin, mail_server, single_sign_on, changes, field, message
):
    User.objects.filter(pk=admin.pk).update(username="admin-one")
    page = office.post(ADD, {**ANA, **PASSWORD, **changes})
    assert message in errors_of(page)[field]
    assert User.objects.count() == 1


def test_no_other_way_to_sign_in_is_named_where_there_is_none(office, settings):
    settings.EMAIL_HOST = ""
    page = office.post(ADD, {**ANA, **PASSWORD, "password": "", "password_again": ""})
    assert errors_of(page)["password"] == "Enter a password."


def test_list_shows_names_roles_and_last_sign_in(
    office, admin, nova, django_assert_max_num_queries
):
    ana = people.person("ana.smith", ("liaison", nova), ("shifter", None))
    User.objects.filter(pk=ana.pk).update(first_name="Ana", last_name="Smith")
    for number in range(3):
        people.person(f"user-{number}", ("liaison", nova))
    with django_assert_max_num_queries(14):
        page = text_of(office.get("/admin/accounts/user/"))
    assert "Ana Smith" in page
    assert "Liaison of NOvA, Shifter of all experiments" in page
    assert "Last sign-in" in page
    assert "Staff status" not in page


def test_page_says_who_the_user_is_and_hides_what_the_portal_does_not_use(office, liaison, nova):
    now = timezone.now()
    create_token(user=liaison, name="cron job", days=30, by=liaison, at=now)
    page = text_of(office.get(reverse("admin:accounts_user_change", args=[liaison.pk])))
    summary = page.partition("Summary")[2].partition("</section>")[0]
    assert "Liaison of NOvA" in summary
    assert "Last sign-in" in summary
    assert "cron job</a>, read and change, until" in summary
    assert "Deactivate…" in summary
    assert "failed logins" not in summary
    AccessAttempt.objects.create(username=liaison.username, failures_since_start=5)
    page = text_of(office.get(reverse("admin:accounts_user_change", args=[liaison.pk])))
    assert f"/admin/axes/accessattempt/?q={liaison.username}" in page
    for unused in ("Superuser status", "Staff status", "Groups", "identity at single sign-on"):
        assert unused.casefold() not in page.casefold()
    assert "/delete/" not in page


def test_deactivation_says_what_it_does_and_ends_access(office, admin, liaison):
    create_token(user=liaison, name="cron job", days=30, by=liaison, at=timezone.now())
    address = reverse("admin:accounts_user_access", args=[liaison.pk])
    page = text_of(office.get(address))
    assert "These API tokens are revoked for good: cron job." in page
    liaison.refresh_from_db()
    assert liaison.is_active

    done = office.post(address, {"deactivate": "1", "reason": "Left the lab."}, follow=True)

    liaison.refresh_from_db()
    assert not liaison.is_active
    assert not ApiToken.objects.filter(user=liaison).exists()
    assert f"deactivated by {admin}" in text_of(done)
    assert "Deactivated." in text_of(office.get("/admin/admin/logentry/"))
    event = events_of(liaison).get(kind="user.deactivated")
    assert (event.actor, event.reason) == (admin.username, "Left the lab.")

    assert "can log in again" in text_of(office.get(address))
    office.post(address, {"reactivate": "1"})
    liaison.refresh_from_db()
    assert liaison.is_active
    assert liaison.memberships.exists()


def test_admin_cannot_lock_oneself_out(office, admin):
    address = reverse("admin:accounts_user_access", args=[admin.pk])
    page = text_of(office.post(address, {"deactivate": "1"}, follow=True))
    assert "You cannot deactivate yourself." in page
    admin.refresh_from_db()
    assert admin.is_active


def test_link_for_a_password_is_sent_once(office, mail_server, liaison):
    User.objects.filter(pk=liaison.pk).update(email="lena@x.org")
    address = reverse("admin:accounts_user_link", args=[liaison.pk])
    assert "is on its way to lena@x.org" in text_of(office.post(address, follow=True))
    assert "A link was sent a moment ago." in text_of(office.post(address, follow=True))
    assert events_of(liaison).filter(kind="account.password_reset_requested").count() == 1


def test_name_of_a_user_is_fixed_after_the_first_sign_in(office):
    ana = people.person("ana.smith")
    address = reverse("admin:accounts_user_change", args=[ana.pk])
    data = {"cluster_logins-TOTAL_FORMS": 0, "cluster_logins-INITIAL_FORMS": 0}
    assert office.post(address, {**data, "username": "ana"}).status_code == 302
    User.objects.filter(pk=ana.pk).update(last_login=timezone.now())
    assert office.post(address, {**data, "username": "anna"}).status_code == 302
    ana.refresh_from_db()
    assert ana.username == "ana"
    assert 'name="username"' not in text_of(office.get(address))


def test_password_is_set_or_deleted(office, liaison):
    address = reverse("admin:auth_user_password_change", args=[liaison.pk])
    page = text_of(office.get(address))
    assert "Signs in by password:" in page
    assert "LDAP" not in page
    new = {"usable_password": "true", "password1": "long enough 1", "password2": "long enough 1"}
    assert office.post(address, new).status_code == 302
    liaison.refresh_from_db()
    assert liaison.check_password("long enough 1")
    office.post(address, {"usable_password": "false", "unset-password": "1"})
    liaison.refresh_from_db()
    assert not liaison.has_usable_password()


def test_shifter_can_neither_deactivate_nor_send(client, shifter, liaison):
    client.force_login(shifter)
    for name in ("access", "link"):
        address = reverse(f"admin:accounts_user_{name}", args=[liaison.pk])
        assert client.post(address, {"deactivate": "1"}).status_code == 302
    liaison.refresh_from_db()
    assert liaison.is_active
