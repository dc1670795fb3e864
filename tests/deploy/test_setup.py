"""`opsportal setup` with a real PostgreSQL: from nothing to a portal in which its admin logs in."""

import http.client
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.deploy.portal_site import ROOT, NewSite, PasswordServer, bare_environment

pytestmark = [pytest.mark.xdist_group("setup"), pytest.mark.slow]


@pytest.fixture(scope="module")
def server():
    server = PasswordServer(Path(tempfile.mkdtemp(prefix="opsportal-setup-")) / "servers")
    yield server
    server.stop()
    server.sockets.parents[1].rmdir()


@pytest.fixture
def site(tmp_path, server, request):
    """A site whose role and database are not there yet."""
    name = re.sub(r"\W", "_", request.node.name)[:40]
    yield NewSite(tmp_path, server, name)
    server.run(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
    server.run(f'DROP ROLE IF EXISTS "{name}"')


@pytest.fixture(scope="module")
def ready(tmp_path_factory, server):
    """A site that is set up, and what the setup said."""
    site = NewSite(tmp_path_factory.mktemp("ready"), server, "ready")
    site.said = site.set_up()
    return site


def test_setup_says_what_it_does_and_leaves_closed_files(ready):
    steps = [line for line in ready.said.splitlines() if line.startswith("* ")]
    assert [step.split()[1] for step in steps[:2]] == ["create", "create"]
    for what in ("secret-key", "masking-key", "metrics-token", "database-url", "redis-url"):
        assert any(f"write the secret {ready.etc}/secrets/{what}" in step for step in steps)
    assert "create the PostgreSQL role ready" in ready.said
    assert "create the admin ann" in ready.said
    for path, (mode, _, content) in ready.files().items():
        if path.startswith(str(ready.etc)):
            assert not mode & 0o007, path
            assert not content or content.decode().strip() not in ready.said
    assert not list(ready.etc.rglob(".*"))
    assert ready.server.run("SELECT rolsuper FROM pg_roles WHERE rolname = 'ready'") == [(False,)]


def test_repeated_setup_changes_nothing(ready):
    files = ready.files()
    rows = ready.rows()
    password = ready.server.run("SELECT rolpassword FROM pg_authid WHERE rolname = 'ready'")
    said = ready.set_up(
        TIME_ZONE="Europe/Paris",
        MASKING_KEY="another key",
        admin_password="another long password",
    )
    assert "Nothing was changed: everything is there already." in said
    assert not re.search(r"^\* ", said, re.MULTILINE)
    assert "TIME_ZONE stays as it is" in said
    assert "MASKING_KEY stays as it is" in said
    assert "another key" not in said
    assert ready.files() == files
    assert ready.rows() == rows
    assert ready.server.run("SELECT rolpassword FROM pg_authid WHERE rolname = 'ready'") == password
