"""What still works after an account is deactivated, or a role or token revoked: nothing,
from the next request on.
"""

import pytest
from django.test import Client
from django.utils import timezone

from apps.accounts.domain.api_tokens import create_token, revoke_token
from apps.accounts.domain.passwords import set_password
from apps.accounts.domain.roles import revoke_role
from apps.accounts.models import ApiToken, User
from apps.notifications.domain.atom_feeds import make_feed_address
from apps.notifications.models import Preferences
from tests.factories.requests import draft

BACKENDS = ("django.contrib.auth.backends.ModelBackend", "apps.accounts.web.openid.OpenIDBackend")
PAGES = ("/", "/accounts/settings/", "/requests/", "/services/", "/admin/")


@pytest.mark.parametrize("backend", BACKENDS)
def test_open_session_ends_with_the_account(client, admin, settings, backend):
    settings.AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", *BACKENDS]
    client.force_login(admin, backend)
    assert [client.get(page).status_code for page in PAGES] == [200] * len(PAGES)
    User.objects.filter(pk=admin.pk).update(is_active=False)
    assert [client.get(page).status_code for page in PAGES] == [302] * len(PAGES)
    assert client.get("/api/v1/requests/").status_code == 401


@pytest.fixture
def doors(liaison, nova):
    """Return how a liaison reads a request: by session, API token and feed URL."""
    now = timezone.now()
    path = f"/api/v1/requests/{draft(liaison, nova)}/"
    make_feed_address(user=liaison, by=liaison, at=now)
    feed = Preferences.objects.get(user=liaison).feed_token
    token = create_token(user=liaison, name="cron", days=30, by=liaison, at=now)
    browser = Client()
    browser.force_login(liaison, BACKENDS[0])
    return {
        "session": lambda: browser.get(path).status_code,
        "token": lambda: (
            Client().get(path, headers={"Authorization": f"Bearer {token}"}).status_code
        ),
        "feed": lambda: (
            Client().get(f"/feeds/{feed}/requests/{path.split('/')[-2]}.atom").status_code
        ),
    }


def deactivate(user):
    User.objects.filter(pk=user.pk).update(is_active=False)


def lose_role(user):
    revoke_role(membership=user.memberships.get(), by="test", at=timezone.now())


def lose_token(user):
    revoke_token(user=user, token_key=ApiToken.objects.get().token_key, by=user, at=timezone.now())


def change_password(user):
    set_password(user=user, password="another horse battery staple", by=user, at=timezone.now())


@pytest.mark.parametrize(
    ("revoke", "expected"),
    [
        (deactivate, {"session": 401, "token": 401, "feed": 404}),
        (lose_role, {"session": 404, "token": 404, "feed": 404}),
        (lose_token, {"session": 200, "token": 401, "feed": 200}),
        (change_password, {"session": 401, "token": 200, "feed": 200}),
    ],
)
def test_revocation_counts_at_the_next_request(doors, liaison, revoke, expected):
    assert {name: door() for name, door in doors.items()} == dict.fromkeys(doors, 200)
    revoke(liaison)
    assert {name: door() for name, door in doors.items()} == expected
