"""opsctl: its wheel is installed and run as a program against a running portal;
the rest runs without a socket.
"""

import json
import os
import subprocess
import sys
import zipfile
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from django.test import Client
from django.utils import timezone
from flit_core.buildapi import build_wheel

from apps.accounts.enums import TokenScope
from apps.accounts.models import ApiToken
from apps.production.models import Request
from tests.factories.requests import draft, request_in

CLIENT = Path(__file__).parents[2] / "clients/opsctl"


def token_of(user, scope=TokenScope.WRITE) -> str:
    return ApiToken.objects.create(user, expiry=timedelta(days=1), name="test", scope=scope)[1]


@pytest.fixture(scope="session")
def installed(tmp_path_factory) -> Path:
    """A folder with the contents of the wheel, as pip would install it."""
    place, here = tmp_path_factory.mktemp("opsctl"), Path.cwd()
    os.chdir(CLIENT)
    try:
        wheel = place / build_wheel(str(place))
    finally:
        os.chdir(here)
    zipfile.ZipFile(wheel).extractall(place / "site")
    assert (
        "opsctl=opsctl.cli:main"
        in next(place.glob("site/*.dist-info/entry_points.txt")).read_text()
    )
    return place / "site"


@pytest.fixture
def opsctl(installed, monkeypatch):
    """Run the client in this process, as this user, on the portal without a socket."""
    monkeypatch.syspath_prepend(str(installed))
    from opsctl.cli import main
    from opsctl.portal import Portal

    def answer(call: httpx.Request) -> httpx.Response:
        headers = {
            name: value
            for name, value in call.headers.items()
            if name not in {"content-length", "content-type"}
        }
        path, kind = call.url.raw_path.decode(), call.headers.get("content-type", "")
        response = Client().generic(
            call.method, path, call.read(), content_type=kind, headers=headers
        )
        return httpx.Response(
            response.status_code, headers=dict(response.items()), content=response.content
        )

    transport = httpx.MockTransport(answer)

    def run(user, *words, code=0, scope=TokenScope.WRITE, **more):
        portal = Portal(
            "http://testserver", token_of(user, scope) if user else "wrong", transport=transport
        )
        done = CliRunner().invoke(main, list(words), obj=portal, **more)
        assert done.exit_code == code, (done.output, done.exception)
        return done

    return run


def test_program_against_a_running_portal(installed, live_server, liaison, approver, nova):
    request_in("submitted", by=liaison, experiment=nova, approver=approver)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(installed), "LANG": "C.UTF-8"}
    connected = environment | {
        "OPSPORTAL_URL": live_server.url,
        "OPSPORTAL_TOKEN": token_of(liaison),
    }

    def run(*words, env=connected):
        command = [sys.executable, "-m", "opsctl", *words]
        return subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=60, check=False
        )

    listed = run("requests", "list", "--json")
    assert (listed.returncode, [row["key"] for row in json.loads(listed.stdout)]) == (
        0,
        ["NOVA-0001"],
    )
    assert "OPSPORTAL_URL" in (unset := run("services", env=environment)).stderr
    assert unset.returncode == 2
    away = run("services", env=connected | {"OPSPORTAL_URL": "http://127.0.0.1:9"})
    assert (away.returncode, "cannot be reached" in away.stderr) == (5, True)
    completed = {
        "_OPSCTL_COMPLETE": "bash_complete",
        "COMP_WORDS": "opsctl requests status nova",
        "COMP_CWORD": "3",
    }
    assert run(env=connected | completed).stdout == "plain,NOVA-0001\n"


@pytest.mark.django_db
def test_a_rejected_request_is_reopened_with_a_reason(opsctl, liaison, approver, nova):
    request_in("rejected", by=liaison, experiment=nova, approver=approver)
    reopen = ("requests", "reopen", "NOVA-0001")
    assert "reason" in opsctl(approver, *reopen, code=1).stderr
    assert opsctl(liaison, *reopen, "--reason", "no", code=4).stderr
    reopened = opsctl(approver, *reopen, "--reason", "By mistake.")
    assert reopened.stdout == "NOVA-0001: submitted\n"


@pytest.mark.django_db
def test_request_from_yaml_to_approval(opsctl, liaison, approver, nova, monkeypatch):
    # The program has the real clock.
    made = draft(liaison, nova, deadline=timezone.localdate() + timedelta(days=30))
    text = opsctl(liaison, "requests", "yaml", made.key).stdout
    key = opsctl(
        liaison, "requests", "create", "-", input=text.replace(".root", "2.root")
    ).stdout.strip()
    assert (key, Request.objects.count()) == ("NOVA-0002", 2)
    assert (
        json.loads(opsctl(liaison, "requests", "check", made.key, "--json").stdout)["findings"]
        == []
    )
    assert opsctl(liaison, "requests", "submit", made.key).stdout == "NOVA-0001: submitted\n"
    assert "version" in json.loads(opsctl(approver, "requests", "list", "--json").stdout)[0]
    refused = opsctl(liaison, "requests", "approve", made.key, code=4)
    assert refused.stderr.startswith("Error: ")
    assert opsctl(approver, "requests", "request-changes", made.key, code=1).stderr
    assert "NOVA-0001  " in opsctl(approver, "requests", "list", "--state", "submitted").stdout
    status = opsctl(liaison, "requests", "status", made.key).stdout
    assert "state" in status
    assert "jobs requested" in status
    assert opsctl(
        liaison, "requests", "wait", made.key, "--state", "done", "--timeout", "0", code=7
    )
    assert opsctl(approver, "requests", "list", "--state", "nowhere", code=1).stderr.startswith(
        "Error: state: "
    )


def test_jobs_logs_verdicts_and_archive(opsctl, world, liaison, other_liaison):
    (job,) = json.loads(opsctl(liaison, "jobs", "list", "--limit", "1", "--json").stdout)
    assert job["job_id"] in opsctl(liaison, "jobs", "show", str(job["id"])).stdout
    assert (
        json.loads(opsctl(liaison, "logs", str(job["id"]), "--lines", "3", "--json").stdout)[
            "streams"
        ]
        is not None
    )
    opsctl(other_liaison, "logs", str(job["id"]), code=3)
    failed = json.loads(opsctl(liaison, "verdicts", "list", "--json").stdout)[0]
    assert failed["verdict"] in opsctl(liaison, "verdicts", "show", str(failed["job"])).stdout
    archived = json.loads(opsctl(liaison, "archive", "search", "--json").stdout)[0]
    assert opsctl(liaison, "archive", "script", str(archived["id"])).stdout_bytes.startswith(b"#!")
    variables = opsctl(liaison, "archive", "environment", str(archived["id"])).stdout
    assert variables.startswith("OPSPORTAL_REQUEST=NOVA-0001\nOPSPORTAL_STAGE=reco\n")


def test_services_and_advice(opsctl, world, liaison, shifter, api):
    assert world.service.slug in opsctl(liaison, "services").stdout
    body = {
        "title": "Tape is full\x1b[2J",
        "do_not_submit": True,
        "starts_at": timezone.now().isoformat(),
    }
    assert api(shifter).post("/api/v1/announcements/", body, format="json").status_code == 201
    said = opsctl(liaison, "advice", code=6).stdout
    assert "Do not submit: Tape is full" in said
    assert "\x1b" not in said


@pytest.mark.django_db
def test_tokens(opsctl, liaison, nova):
    made = draft(liaison, nova)
    assert "OPSCTL_COMPLETE" in opsctl(None, "completion", "bash").stdout
    opsctl(None, "requests", "list", code=4)
    refused = opsctl(liaison, "requests", "submit", made.key, scope=TokenScope.READ, code=4)
    assert refused.stderr == "Error: The scope of this token is read only.\n"
    opsctl(liaison, "requests", "status", "NOVA-9999", scope=TokenScope.READ, code=3)
