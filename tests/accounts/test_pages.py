"""Login, settings and tokens in the browser's place."""

from django.test import Client

from apps.accounts.models import ApiToken
from tests.factories import people


def test_login_leads_to_where_one_wanted_to_go(client, liaison):
    assert (
        client.get("/accounts/settings/").headers["Location"]
        == "/accounts/login/?next=/accounts/settings/"
    )
    response = client.post(
        "/accounts/login/",
        {"username": "nova-liaison", "password": people.PASSWORD, "next": "/accounts/settings/"},
    )
    assert response.headers["Location"] == "/accounts/settings/"


def test_wrong_password_says_so_and_locks_after_five(client, liaison):
    for _ in range(4):
        response = client.post(
            "/accounts/login/", {"username": "nova-liaison", "password": "wrong"}
        )
        assert b"Please enter a correct username" in response.content
    locked = client.post("/accounts/login/", {"username": "nova-liaison", "password": "wrong"})
    assert locked.status_code == 429
    assert b"Too many failed login attempts" in locked.content
    right = client.post(
        "/accounts/login/", {"username": "nova-liaison", "password": people.PASSWORD}
    )
    assert right.status_code == 429


def test_settings_keep_the_time_zone(client, liaison):
    client.force_login(liaison)
    assert client.post("/accounts/settings/", {"time_zone": "Europe/Paris"}).status_code == 302
    liaison.refresh_from_db()
    assert liaison.time_zone == "Europe/Paris"


def test_unknown_time_zone_is_refused_beside_its_field(client, liaison):
    client.force_login(liaison)
    response = client.post("/accounts/settings/", {"time_zone": "Mars/Base"})
    assert b'id="id_time_zone_error"' in response.content
    liaison.refresh_from_db()
    assert liaison.time_zone == ""


def test_token_is_shown_once_works_and_is_revoked(client, liaison):
    client.force_login(liaison)
    response = client.post(
        "/accounts/settings/tokens/", {"name": "nightly", "scope": "read", "days": 30}
    )
    token = response.context["new_token"]
    assert token.encode() in response.content
    assert token.encode() not in client.get("/accounts/settings/").content
    stored = ApiToken.objects.get(user=liaison)
    assert token not in (stored.digest, stored.token_key)
    for scheme in ("Bearer", "Token"):
        headers = {"Authorization": f"{scheme} {token}"}
        assert Client().get("/api/v1/requests/", headers=headers).status_code == 200
        refused = Client().post(
            "/api/v1/requests/", {}, content_type="application/json", headers=headers
        )
        assert (refused.status_code, refused.json()) == (
            403,
            {"detail": "The scope of this token is read only."},
        )
    assert "nightly" in (page := client.get("/accounts/settings/").content.decode())
    assert "Read only" in page
    client.post(f"/accounts/settings/tokens/{stored.token_key}/revoke/")
    assert not ApiToken.objects.exists()


def test_token_of_somebody_else_cannot_be_revoked(client, liaison, other_liaison):
    instance, _ = ApiToken.objects.create(other_liaison)
    client.force_login(liaison)
    assert client.post(f"/accounts/settings/tokens/{instance.token_key}/revoke/").status_code == 404
    assert ApiToken.objects.count() == 1


def test_pages_forbid_inline_script(client, liaison):
    client.force_login(liaison)
    policy = client.get("/accounts/settings/").headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
