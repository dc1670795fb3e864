"""`opsportal setup` with a real PostgreSQL: from nothing to a portal in which its admin logs in."""

import http.client
import os
import re
import shlex
import signal
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


@pytest.fixture
def web(ready):
    """The web server as its unit starts it: with the env file that a shell reads."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    gunicorn = [
        sys.executable,
        "-m",
        "gunicorn",
        "opsportal.wsgi",
        "--no-control-socket",
        "--bind",
        f"127.0.0.1:{port}",
    ]
    script = f"set -a; . {ready.env_file}; set +a; exec {shlex.join(gunicorn)}"
    process = subprocess.Popen(["sh", "-euc", script], cwd=ROOT, env=bare_environment())
    yield port
    process.terminate()
    process.wait(timeout=60)


def ask(port, method, path, form=None, **headers):
    """Ask the web server as nginx does; return status, headers and text."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers |= {"Host": "opsportal.example.org", "X-Forwarded-Proto": "https"}
    headers |= {"Referer": "https://opsportal.example.org/"}
    if form:
        headers["Content-Type"] = "application/x-www-form-urlencoded"
    connection.request(method, path, urlencode(form or {}), headers)
    answer = connection.getresponse()
    return answer.status, answer.headers, answer.read().decode()


def wait_for_web(port):
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            return ask(port, "GET", "/readyz")
        except OSError:
            time.sleep(0.2)
    pytest.fail("the web server did not start")


def test_portal_is_ready_and_its_admin_logs_in(ready, web):
    status, _, said = wait_for_web(web)
    assert status == 200, said
    status, headers, page = ask(web, "GET", "/accounts/login/")
    assert status == 200
    assert "times in Europe/Berlin" in page
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page)[1]
    cookie = headers["Set-Cookie"].partition(";")[0]
    form = {
        "csrfmiddlewaretoken": token,
        "username": "ann",
        "password": ready.answers["admin_password"],
    }
    status, headers, page = ask(web, "POST", "/accounts/login/", form, Cookie=cookie)
    assert status == 302, page
    cookies = "; ".join(value.partition(";")[0] for value in headers.get_all("Set-Cookie"))
    status, _, page = ask(web, "GET", "/health/", Cookie=cookies)  # for the role Admin alone
    assert status == 200
    assert "ann" in page


def test_setup_continues_after_a_kill_at_each_step(site):
    """Each run gets one step further than the one before, and is killed before it takes it."""
    steps = (
        f"write the secret {site.etc}/secrets/secret-key",
        f"write the settings {site.env_file}",
        "create the PostgreSQL role",
        "create the PostgreSQL database",
        "apply the migrations",
        "collect static files",
        "create the admin ann",
    )
    secrets = {}
    for step in steps:
        kill_at(site, step)
        if step == "apply the migrations":
            kill_within(site, step)
        for path in (site.etc / "secrets").glob("[!.]*"):
            assert secrets.setdefault(path, path.read_bytes()) == path.read_bytes()
    site.set_up(database_admin="none")  # the database is there, so it is not needed
    for path, content in secrets.items():
        assert path.read_bytes() == content
    assert len(site.rows()["accounts_user"]) == 1
    assert not list(site.etc.rglob(".*"))


#: Runs a program that is killed, as by `kill -9`, when it has printed the line of a step.
KILLED_AT_STEP = """
import os, runpy, signal, sys

class Output:
    def __init__(self, stream, step):
        self.stream, self.step = stream, step

    def write(self, text):
        self.stream.write(text)
        if text.startswith(self.step):
            self.stream.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    def __getattr__(self, name):
        return getattr(self.stream, name)

step, program, *sys.argv[1:] = sys.argv[1:]
sys.argv[0] = program
sys.path[0] = os.path.dirname(program)
sys.stdout = Output(sys.stdout, f"* {step}")
runpy.run_path(program, run_name="__main__")
"""


def kill_at(site, step, **changes):
    """Kill the setup when it has printed this step, before it takes it; return what it said."""
    python, *setup = site.command(**changes)
    done = subprocess.run(
        [python, "-c", KILLED_AT_STEP, step, *setup],
        cwd=site.directory, env=bare_environment(), text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stdout
    assert done.stdout.splitlines()[-1].startswith(f"* {step}")
    return done.stdout


def kill_within(site, step, **changes):
    """Kill the setup while it takes a step of some seconds."""
    process = subprocess.Popen(
        site.command(**changes), cwd=site.directory, env=bare_environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    with process:
        for line in process.stdout:
            if line.startswith(f"* {step}"):
                time.sleep(0.5)
                process.kill()
    assert process.returncode == -signal.SIGKILL


def test_dry_run_changes_nothing(site):
    said = site.set_up("--dry-run")
    assert f"* write the settings {site.env_file}" in said
    assert "* create the admin ann" in said
    assert "Dry run: nothing was changed." in said
    assert list(site.directory.iterdir()) == [site.directory / "answers.toml"]
    assert site.server.run(f"SELECT 1 FROM pg_roles WHERE rolname = '{site.name}'") == []


def test_without_an_admin_connection_the_sql_is_printed(site):
    said = site.set_up(database_admin="none", code=1)
    statements = re.findall(r"^    ((?:CREATE ROLE|CREATE DATABASE) .*);$", said, re.MULTILINE)
    assert len(statements) == 2
    password = (site.etc / "secrets/database-url").read_text().split(":")[2].split("@")[0]
    assert password not in said
    for statement in statements:
        site.server.run(statement)
    said = kill_at(site, "apply the migrations", database_admin="none")
    assert "unchanged: role" in said


def test_root_creates_the_database_as_the_user_postgres(site, tmp_path, monkeypatch):
    """`runuser` stands for the system's: it checks the user and reaches the server of the test."""
    if os.geteuid():
        pytest.skip("needs root")
    fake = tmp_path / "bin/runuser"
    fake.parent.mkdir()
    psql = site.server.postgres.bin / "psql"
    (tmp_path / "bin/psql").symlink_to(psql)
    fake.write_text(
        f'#!/bin/sh\n[ "$1 $2 $3 $4" = "-u postgres -- psql" ] || exit 9\nshift 4\n'
        f'exec {psql} --host={site.server.sockets} --username=opsportal "$@"\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    said = site.set_up("--dry-run", database_admin="local")
    assert "create the PostgreSQL database" in said
    site.server.run(f"CREATE ROLE \"{site.name}\" LOGIN PASSWORD 'of-an-admin'")
    said = site.set_up(database_admin="local", code=1)
    assert re.search(r"answers.toml, line \d+: DATABASE_URL: the role \w+ exists already", said)
    assert not site.etc.exists()
