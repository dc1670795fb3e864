"""Login by a proxy that names the user in a header: from that proxy alone."""

import pytest

from apps.accounts.models import User
from tests.factories import people

STRIP = "apps.accounts.web.remote_user.StripRemoteUserMiddleware"
LOG_IN = "apps.accounts.web.remote_user.RemoteUserMiddleware"
PROXY = "apps.core.web.middleware.TrustedProxyMiddleware"


@pytest.fixture
def proxy(settings, db):
    settings.REMOTE_USER_HEADER, settings.REMOTE_USER_GROUPS_HEADER = (
        "X-Remote-User",
        "X-Remote-Groups",
    )
    settings.REMOTE_USER_PROXIES = ["127.0.0.1", "10.1.0.0/16"]
    settings.SSO_ROLES = {"opg": ["shifter"]}
    place = settings.MIDDLEWARE.index("apps.accounts.web.middleware.LoginMiddleware")
    settings.MIDDLEWARE = [
        STRIP,
        PROXY,
        *settings.MIDDLEWARE[:place],
        LOG_IN,
        *settings.MIDDLEWARE[place:],
    ]


def visit(client, user="", groups="", address="127.0.0.1", path="/accounts/settings/", **more):
    headers = {
        name: text for name, text in (("X-Remote-User", user), ("X-Remote-Groups", groups)) if text
    }
    return client.get(path, headers=headers | more, REMOTE_ADDR=address)


def test_header_is_nothing_unless_it_is_set(client, liaison):
    assert visit(client, "nova-liaison").status_code == 302


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", ""])
def test_proxy_names_the_user(client, proxy, address):
    page = visit(client, "eve", "other; opg", address)
    assert page.status_code == 200
    assert (page.context["user"].username, page.context["user"].memberships.get().role) == (
        "eve",
        "shifter",
    )


@pytest.mark.parametrize("address", ["192.0.2.7", "10.2.0.1", "::1", "unix"])
def test_others_name_nobody(client, proxy, liaison, address):
    claimed = {"X-Forwarded-For": "127.0.0.1"}
    assert visit(client, "nova-liaison", address=address, **claimed).status_code == 302


def test_names_of_the_proxy_take_no_account_with_a_password(client, proxy, liaison, admin):
    """Such as the local superuser, who has one for the day on which the proxy is away."""
    for user in (liaison, admin):
        page = visit(client, user.username)
        assert page.status_code == 403
        assert "is not linked to single sign-on" in page.content.decode()
    User.objects.update(link_by_name=True)
    assert visit(client, liaison.username).context["user"] == liaison
    assert visit(client, admin.username).status_code == 403


def test_admins_without_a_password_come_by_the_proxy(client, proxy, admin):
    admin.set_unusable_password()
    admin.save()
    assert visit(client, admin.username).context["user"] == admin


def test_session_ends_when_the_proxy_names_nobody_or_someone_else(client, proxy):
    visit(client, "eve")
    assert visit(client, "mal").context["user"].username == "mal"
    assert visit(client).status_code == 302
    assert visit(client).status_code == 302


def test_login_by_password_goes_on_beside_it(client, proxy, liaison):
    client.post("/accounts/login/", {"username": "nova-liaison", "password": people.PASSWORD})
    assert visit(client).status_code == 200


def test_refusal_says_why_and_locks_nobody_out(client, proxy, settings, caplog):
    settings.SSO_CREATE_USERS, settings.SUPPORT_CONTACT = False, "ops@example.org"
    for _ in range(6):
        page = visit(client, "eve")
    assert page.status_code == 403
    assert "There is no account &#x27;eve&#x27; here." in page.content.decode()
    assert "ops@example.org" in page.content.decode()
    assert 'Login failed: address=127.0.0.1 user="eve"' in caplog.text
    settings.SSO_CREATE_USERS = True
    assert visit(client, "eve").status_code == 200
    assert User.objects.count() == 1


def test_health_asks_no_database(client, proxy, django_assert_num_queries):
    with django_assert_num_queries(0):
        assert visit(client, "eve", path="/healthz").status_code == 200


def test_api_takes_tokens_and_sessions_alone(client, proxy):
    assert visit(client, "eve", path="/api/v1/requests/").status_code == 401
    visit(client, "eve")
    assert visit(client, "eve", path="/api/v1/requests/").status_code == 200


@pytest.mark.parametrize("name", ["", "mal"])
def test_session_ends_at_the_api_too(client, proxy, name):
    visit(client, "eve")
    assert visit(client, name, path="/api/v1/requests/").status_code == 401
    assert visit(client, "eve", path="/api/v1/requests/").status_code == 401


def test_session_that_the_proxy_began_is_worth_nothing_beside_the_proxy(client, proxy):
    visit(client, "eve")
    assert visit(client, "eve", address="192.0.2.7", path="/api/v1/requests/").status_code == 401


@pytest.mark.parametrize(
    "spoofed",
    [
        {"HTTP_X_REMOTE_USER": "nova-liaison,eve"},
        {"HTTP_X_REMOTE_USER": "nova-liaison eve"},
        {"HTTP_X_REMOTE_USER": "eve\x00"},
        {"REMOTE_USER": "nova-liaison"},
        {"HTTP_REMOTE_USER": "nova-liaison"},
        {"HTTP_X__REMOTE_USER": "nova-liaison"},
    ],
)
def test_other_spellings_name_nobody(client, proxy, liaison, spoofed):
    """A proxy that adds its header to that of the client makes one with a comma."""
    User.objects.update(link_by_name=True)
    answer = client.get("/accounts/settings/", REMOTE_ADDR="127.0.0.1", **spoofed)
    assert answer.status_code in {302, 403}
    assert "_auth_user_id" not in client.session
