"""The client and the settings that docs/single-sign-on.md gives to labs with Keycloak.

`python -m benchmarks.single_sign_on` sets up a real one with them.
"""

from pathlib import Path

from django.urls import reverse

from benchmarks.single_sign_on import realm
from opsportal.env import Environment
from opsportal.setting_values import read_roles


def test_settings_of_the_guide_exist_and_roles_are_read(tmp_path):
    settings = realm.settings(tmp_path, "http://127.0.0.1:1/realms/lab", "secret")
    known = set(Environment.model_fields)
    assert {name.removesuffix("_FILE") for name in settings} <= known
    assert settings["OIDC_ISSUER"] == "http://127.0.0.1:1/realms/lab"
    assert Path(settings["OIDC_CLIENT_SECRET_FILE"]).read_text() == "secret"
    roles = read_roles(Path(settings["SSO_ROLES_FILE"]).read_text())
    assert roles["/nova/liaisons"] == ["liaison:NOVA"]
    assert all(group.startswith("/") for group in roles)  # the mapper gives full paths


def test_client_of_the_guide_leads_back_to_the_portal():
    client = realm.client("https://portal.example.org")
    callback = reverse("accounts:openid-callback")
    assert client["redirectUris"] == [f"https://portal.example.org{callback}"]
    login = reverse("accounts:login")
    logout_targets = client["attributes"]["post.logout.redirect.uris"]
    assert logout_targets == f"https://portal.example.org{login}"
    assert client["attributes"]["pkce.code.challenge.method"] == "S256"
    assert "secret" not in client
