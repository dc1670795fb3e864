"""Login by OpenID Connect, at a real provider; and what the portal does not believe."""

import time
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from django.utils import timezone

from apps.accounts.models import User
from apps.accounts.web import openid
from apps.core.domain.events import events_of
from tests.accounts.openid_provider import provider as running_provider

START = "/accounts/openid/"
BACKENDS = ["django.contrib.auth.backends.ModelBackend", "apps.accounts.web.openid.OpenIDBackend"]
ROLES = {
    "/nova/liaisons": ["liaison:NOVA"],
    "opg": ["approver", "shifter"],
    "ghosts": ["liaison:GHOST"],
}


@pytest.fixture(scope="module")
def provider():
    with running_provider() as provider:
        yield provider


@pytest.fixture
def sso(provider, settings, db):
    """The portal as a client of the provider, which knows Ann."""
    settings.OIDC_ISSUER, settings.OIDC_RP_CLIENT_ID, settings.OIDC_RP_CLIENT_SECRET = (
        provider.issuer,
        "portal",
        "secret",
    )
    settings.OIDC_NAME = "Lab login"
    settings.AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", *BACKENDS]
    provider.has(
        "s-1",
        preferred_username="ann",
        given_name="Ann",
        family_name="Bell",
        email="ann@example.org",
    )
    return provider


def log_in(client, sso, subject="s-1", action="authorize", to=START):
    where = client.get(to).headers["Location"]
    back = urlsplit(sso.log_in(where, subject, action))
    return client.get(f"{back.path}?{back.query}", follow=True)


def logged_in(client) -> str:
    key = client.session.get("_auth_user_id")
    return User.objects.get(pk=key).username if key else ""


def test_login_page_leads_to_the_provider_with_pkce(client, sso):
    assert (
        b'href="/accounts/openid/?next=%2Fjobs%2F"'
        in client.get("/accounts/login/?next=/jobs/").content
    )
    asked = parse_qs(urlsplit(client.get(START).headers["Location"]).query)
    assert (asked["code_challenge_method"], asked["scope"]) == (["S256"], ["openid profile email"])
    assert asked["redirect_uri"] == ["http://testserver/accounts/openid/callback/"]


def test_first_login_makes_the_account_and_leads_where_one_wanted(client, sso):
    page = log_in(client, sso, to=f"{START}?next=/accounts/settings/")
    assert page.redirect_chain[-1] == ("/accounts/settings/", 302)
    ann = User.objects.get()
    assert (ann.username, ann.get_full_name(), ann.email) == ("ann", "Ann Bell", "ann@example.org")
    assert ann.sign_on_subject == f"{sso.issuer} s-1"
    assert not ann.has_usable_password()
    assert events_of(ann).filter(actor="single sign-on").values_list("kind", flat=True).count() == 2
    assert client.get("/").status_code == 200


def test_next_leads_nowhere_else(client, sso):
    assert (
        log_in(client, sso, to=f"{START}?next=https://evil.example.org/").redirect_chain[-1][0]
        == "/"
    )


def test_account_is_found_by_its_subject_once_linked(client, sso):
    log_in(client, sso)
    sso.has("s-1", preferred_username="ann.bell", email="bell@example.org")
    client.logout()
    log_in(client, sso)
    assert list(User.objects.values_list("username", "email")) == [("ann", "bell@example.org")]


def test_account_without_a_password_is_linked_by_its_name(client, sso, liaison):
    without_password(liaison)
    sso.has("s-2", preferred_username="nova-liaison")
    log_in(client, sso, "s-2")
    assert logged_in(client) == "nova-liaison"
    assert events_of(liaison).filter(kind="account.linked").exists()


def test_account_with_a_password_is_linked_once_if_an_admin_allows_it(client, sso, liaison, admin):
    sso.has("s-2", preferred_username="nova-liaison")
    assert "is not linked to single sign-on" in log_in(client, sso, "s-2").content.decode()
    assert logged_in(client) == ""

    client.force_login(admin)
    page = client.get(f"/admin/accounts/user/{liaison.pk}/change/").content.decode()
    assert 'name="link_by_name"' in page
    client.logout()
    User.objects.filter(pk=liaison.pk).update(link_by_name=True)
    log_in(client, sso, "s-2")
    assert logged_in(client) == "nova-liaison"
    liaison.refresh_from_db()
    assert (liaison.link_by_name, liaison.sign_on_subject) == (False, f"{sso.issuer} s-2")


@pytest.mark.parametrize("password", [True, False])
@pytest.mark.parametrize("marked", [True, False])
def test_staff_is_never_taken_by_name(client, sso, admin, password, marked):
    """The first identity of the provider that is named like the local superuser must not
    become it.
    """
    if not password:
        without_password(admin)
    User.objects.filter(pk=admin.pk).update(link_by_name=marked)
    sso.has("s-9", preferred_username=admin.username, groups=["opg"])
    page = log_in(client, sso, "s-9")
    assert f"The account {admin.username} is not linked to single sign-on." in page.content.decode()
    assert logged_in(client) == ""
    admin.refresh_from_db()
    assert admin.sign_on_subject is None


def test_admin_is_linked_by_the_subject_that_an_admin_enters(client, sso, admin):
    User.objects.filter(pk=admin.pk).update(sign_on_subject=f"{sso.issuer} s-9")
    sso.has("s-9", preferred_username="someone")
    log_in(client, sso, "s-9")
    assert logged_in(client) == admin.username


def without_password(user):
    user.set_unusable_password()
    user.save()


def test_somebody_else_cannot_take_a_linked_account(client, sso):
    log_in(client, sso)
    client.logout()
    sso.has("s-3", preferred_username="ann")
    page = log_in(client, sso, "s-3")
    assert "The account ann belongs to another identity." in page.content.decode()
    assert logged_in(client) == ""


@pytest.mark.parametrize("name", ["", "a b", "x" * 151, "ann\x00"])
def test_name_that_cannot_be_one_is_refused(client, sso, name):
    sso.has("s-4", preferred_username=name)
    assert "cannot be a user name here" in log_in(client, sso, "s-4").content.decode()
    assert not User.objects.exists()


def test_unverified_address_is_not_taken(client, sso):
    sso.has("s-5", preferred_username="bob", email="boss@example.org", email_verified=False)
    log_in(client, sso, "s-5")
    assert User.objects.get().email == ""


def test_accounts_can_be_left_to_admins(client, sso, settings):
    settings.SSO_CREATE_USERS = False
    assert "There is no account" in log_in(client, sso).content.decode()
    assert not User.objects.exists()


def test_inactive_account_stays_out(client, sso, liaison):
    without_password(liaison)
    User.objects.update(is_active=False)
    sso.has("s-2", preferred_username="nova-liaison")
    assert "not active" in log_in(client, sso, "s-2").content.decode()
    assert logged_in(client) == ""


def test_groups_give_and_take_the_roles_of_the_setting_and_no_others(
    client, sso, settings, nova, dune
):
    settings.SSO_ROLES = ROLES
    sso.has("s-6", preferred_username="cy", groups=["/nova/liaisons", "opg", "ghosts", "others"])
    log_in(client, sso, "s-6")
    cy = User.objects.get(username="cy")
    cy.memberships.create(role="liaison", experiment=dune)  # an admin's own
    assert roles_of(cy) == {"liaison NOVA", "approver", "shifter", "liaison DUNE"}
    client.logout()
    sso.has("s-6", preferred_username="cy", groups="opg")
    settings.SSO_ROLES = ROLES | {"opg": ["shifter"], "deciders": ["approver"]}
    log_in(client, sso, "s-6")
    assert roles_of(cy) == {"shifter", "liaison DUNE"}
    client.logout()
    sso.has("s-6", preferred_username="cy")
    log_in(client, sso, "s-6")
    assert roles_of(cy) == {"liaison DUNE"}


def test_admins_by_group_enter_the_back_office_and_leave_it(client, sso, settings):
    settings.SSO_ROLES = {"admins": ["admin"]}
    for groups, code in ((["admins"], 200), ([], 302)):
        sso.has("s-7", preferred_username="di", groups=groups)
        log_in(client, sso, "s-7")
        assert client.get("/admin/").status_code == code
        client.logout()


def roles_of(user) -> set[str]:
    return {
        f"{membership.role} {membership.experiment.key if membership.experiment else ''}".strip()
        for membership in user.memberships.all()
    }


def test_refusal_at_the_provider_leads_back_to_the_login(client, sso):
    page = log_in(client, sso, action="deny")
    assert page.redirect_chain[-1][0] == "/accounts/login/"
    assert b"did not succeed" in page.content


def test_answer_to_another_browser_is_refused(client, sso):
    where = sso.log_in(client.get(START).headers["Location"], "s-1")
    other = client.__class__()
    other.get(START)
    back = urlsplit(where)
    assert b"did not succeed" in other.get(f"{back.path}?{back.query}", follow=True).content
    assert logged_in(other) == ""


def test_code_is_good_once(client, sso):
    back = urlsplit(sso.log_in(client.get(START).headers["Location"], "s-1"))
    client.get(f"{back.path}?{back.query}")
    client.logout()
    client.get(START)
    assert b"did not succeed" in client.get(f"{back.path}?{back.query}", follow=True).content


def test_provider_that_is_away_is_named_and_password_logins_go_on(
    client, sso, settings, liaison, caplog
):
    settings.OIDC_ISSUER = "http://127.0.0.1:1"
    assert b"Lab login does not answer" in client.get(START, follow=True).content
    assert "Single sign-on failed: address=127.0.0.1 reason=" in caplog.text
    data = {"username": "nova-liaison", "password": "correct horse battery staple"}
    assert client.post("/accounts/login/?code=x&state=y", data).status_code == 302
    assert client.get("/").status_code == 200


def test_refusals_lock_nobody_out(client, sso, settings):
    settings.SSO_CREATE_USERS = False
    for _ in range(6):
        log_in(client, sso)
    settings.SSO_CREATE_USERS = True
    log_in(client, sso)
    assert logged_in(client) == "ann"


def token(key, **changes: object) -> str:
    now = int(time.time())
    claims = {"iss": "I", "aud": "portal", "sub": "s", "iat": now, "exp": now + 60} | changes
    return jwt.encode({k: v for k, v in claims.items() if v is not None}, key, algorithm="RS256")


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "J"},
        {"aud": "other"},
        {"exp": 1},
        {"exp": None},
        {"aud": None},
        {"sub": None},
        {"iat": 9_999_999_999},
    ],
)
def test_token_for_others_or_of_others_is_refused(settings, monkeypatch, changes):
    settings.OIDC_RP_CLIENT_ID = "portal"
    monkeypatch.setattr(openid, "discovery", lambda: {"issuer": "I"})
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    backend = openid.OpenIDBackend()
    assert backend._verify_jws(token(key), key.public_key())["sub"] == "s"
    with pytest.raises(jwt.PyJWTError):
        backend._verify_jws(token(key, **changes), key.public_key())


def test_token_without_a_signature_or_signed_with_the_secret_is_refused(settings, monkeypatch):
    settings.OIDC_RP_CLIENT_ID = "portal"
    monkeypatch.setattr(openid, "discovery", lambda: {"issuer": "I"})
    secret = "s" * 40
    for algorithm, key in (("none", None), ("HS256", secret)):
        forged = jwt.encode(
            {"iss": "I", "aud": "portal", "sub": "s", "exp": 9e9}, key, algorithm=algorithm
        )
        with pytest.raises(jwt.PyJWTError):
            openid.OpenIDBackend()._verify_jws(forged, secret)


def test_login_ends_after_its_hours_however_active(client, sso, settings, time_machine):
    """Roles by group are those of the last login, so an open session must not keep them for
    long.
    """
    settings.SSO_ROLES = {"opg": ["shifter"]}
    settings.OIDC_SESSION_HOURS = 12
    sso.has("s-8", preferred_username="eve", groups=["opg"])
    log_in(client, sso, "s-8")
    time_machine.move_to(timezone.now() + timedelta(hours=11, minutes=55))
    client.session.save()
    assert client.get("/health/").status_code == 200
    sso.has("s-8", preferred_username="eve")
    time_machine.move_to(timezone.now() + timedelta(minutes=10))
    assert client.get("/health/").status_code == 302


def test_logout_ends_the_session_and_the_next_login_asks_the_provider(client, sso):
    log_in(client, sso)
    cookie = client.cookies["sessionid"].value
    assert client.post("/accounts/logout/").headers["Location"] == "/accounts/login/"
    client.cookies["sessionid"] = cookie
    assert client.get("/").status_code == 302
    assert client.get(START).headers["Location"].startswith(sso.issuer)


def test_logout_leads_to_that_of_the_provider(client, sso):
    log_in(client, sso)
    page = client.post("/accounts/logout/", follow=True)
    assert "You are logged out of the portal, but not of Lab login." in page.text
    assert 'href="/accounts/openid/logout/"' in page.text
    where = urlsplit(client.get("/accounts/openid/logout/").headers["Location"])
    assert f"{where.scheme}://{where.netloc}" == sso.issuer
    assert where.path == "/oauth2/end_session"
    assert parse_qs(where.query) == {
        "client_id": ["portal"],
        "post_logout_redirect_uri": ["http://testserver/accounts/login/"],
    }


def test_logout_after_a_password_names_no_provider(client, sso, liaison):
    client.force_login(liaison, backend=BACKENDS[0])
    page = client.post("/accounts/logout/", follow=True)
    assert "Log out of Lab login" not in page.text


@pytest.mark.parametrize("end", [None, "javascript:alert(1)"])
def test_provider_without_a_logout_is_not_visited(client, sso, monkeypatch, end):
    document = {**openid.discovery(), "end_session_endpoint": end}
    monkeypatch.setattr(openid, "discovery", lambda *_: document)
    page = client.get("/accounts/openid/logout/", follow=True)
    assert page.redirect_chain == [("/accounts/login/", 302)]
    assert "Lab login offers no page for logging out." in page.text


def test_document_of_another_issuer_is_refused(sso, settings):
    settings.OIDC_ISSUER = sso.issuer.replace("127.0.0.1", "localhost").replace(
        "http://", "HTTP://"
    )
    with pytest.raises(openid.NoAnswer, match="another issuer"):
        openid.discovery()
