"""The lab's realm at Keycloak, and the settings of the portal, as docs/single-sign-on.md has them."""

import json
from pathlib import Path
from typing import Any

from benchmarks.installation.guide import read_blocks
from benchmarks.single_sign_on.keycloak import PASSWORD, REALM
from dev.processes import ROOT

GUIDE = ROOT / "docs/single-sign-on.md"
SECTION = "Keycloak, step by step"
CLIENT = ROOT / "deploy/keycloak/opsportal-client.json"
PORTAL, ISSUER = "https://opsportal.example.org", "https://sso.example.org/realms/lab"
SECRET_FILE = "/etc/opsportal/oidc-client-secret"
ROLES_FILE = "/etc/opsportal/sso-roles.json"
#: The groups of each user at the provider.
USERS = {
    "ann": ["/nova/liaisons"],
    "bob": ["/opg-approvers"],
    "cleo": ["/opg-admins"],
    "dan": ["/nova/liaisons"],
    "eve": ["/canteen"],
    "finn": ["/nova/liaisons"],
    "gus": ["/opg-shifters"],
    "hal": ["/nova/liaisons"],
    "ida": ["/opg-shifters"],
}


def realm() -> dict[str, Any]:
    """Return the import file of the realm: users and groups, without the portal's client."""
    users = []
    for username, groups in USERS.items():
        user = {
            "username": username,
            "email": f"{username}@example.org",
            "emailVerified": True,
            "firstName": username.title(),
            "lastName": "Example",
            "enabled": True,
            "groups": groups,
            "credentials": [{"type": "password", "value": PASSWORD}],
        }
        users.append(user)
    groups = [{"name": name} for name in ("opg-approvers", "opg-shifters", "opg-admins", "canteen")]
    groups.append({"name": "nova", "subGroups": [{"name": "liaisons"}]})
    return {
        "realm": REALM,
        "enabled": True,
        "editUsernameAllowed": True,
        "users": users,
        "groups": groups,
    }


def client(portal_url: str) -> dict[str, Any]:
    """Return the client that the guide imports, for the portal at this address."""
    return json.loads(CLIENT.read_text().replace(PORTAL, portal_url))


def settings(directory: Path, issuer: str, secret: str) -> dict[str, str]:
    """Return the settings of the guide, whose files are written to a directory."""
    blocks = [block.text for block in read_blocks(GUIDE.read_text()) if block.section == SECTION]
    lines, roles = blocks
    files = {SECRET_FILE: (directory / "secret", secret), ROLES_FILE: (directory / "roles", roles)}
    for named, (file, text) in files.items():
        assert named in lines, named
        file.write_text(text)
        lines = lines.replace(named, str(file))
    assert ISSUER in lines
    lines = lines.replace(ISSUER, issuer)
    return dict(line.split("=", 1) for line in lines.splitlines())
