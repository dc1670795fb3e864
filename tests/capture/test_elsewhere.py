"""Capture on a host that has none of the servers, as an operator runs it:
a process with an empty environment.
"""

import subprocess
import sys
from contextlib import contextmanager
from urllib.request import urlopen

import pytest

from apps.archive.domain.capture_hosts import create_capture_host
from apps.archive.domain.store.contents import read_blob
from apps.archive.models import ArchivedJob
from apps.core.models import Heartbeat
from apps.jobs.models import MaskingRule
from tests.archive.conftest import ROOT, archived, wait_for
from tests.archive.spool_writer import environment_bytes, script_of, write_job

KEY = "k" * 50


@pytest.fixture
def elsewhere(spool, tmp_path):
    """Starts `manage.py capture` with these variables alone."""

    def start(*arguments, **environment):
        given = (
            "--cluster",
            "alps",
            "--spool",
            spool,
            "--journal",
            tmp_path / "journal",
            *arguments,
        )
        return subprocess.Popen(
            [sys.executable, ROOT / "manage.py", "capture", *map(str, given)],
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def result(process):
    out, err = process.communicate(timeout=240)
    return process.returncode, out, err


@contextmanager
def running(process):
    try:
        assert process.stdout.readline() == "capturing the jobs of alps\n", process.stderr.read()
        yield
    finally:
        process.kill()
        process.communicate()


def test_process_fails_and_names_what_is_missing(elsewhere):
    code, _, err = result(
        elsewhere("--once", "--portal", "https://me:geheim@portal.example.org", MASKING_KEY=KEY)
    )
    assert code == 1
    assert "without user or password" in err
    assert "geheim" not in err


def test_portal_away_leaves_the_jobs_in_the_journal(elsewhere, spool):
    write_job(spool, 1)
    nowhere = ("--portal", "http://127.0.0.1:1/")
    code, out, err = result(
        elsewhere(
            "--once",
            "--patience-seconds",
            "1",
            *nowhere,
            ARCHIVE_PORTAL_TOKEN="geheim",
            MASKING_KEY=KEY,
        )
    )
    assert (code, out) == (1, "captured 1 jobs of alps\n")
    assert "1 jobs stay in the journal: http://127.0.0.1:1 cannot be reached" in err


def test_jobs_and_report_reach_the_portal_and_rules_come_back(
    elsewhere, spool, tmp_path, transactional_db, live_server, at
):
    _, token = create_capture_host(name="scheduler-1", clusters=["alps"], by="test", at=at)
    MaskingRule.objects.create(applies_to="name", pattern="^PIN$")
    (tmp_path / "token").write_text(token + "\n")
    write_job(spool, 1, variables=[("PIN", "1234"), ("A", "1")])
    # Capture waits seconds for the rules, and a server's first answer takes as long on a busy
    # machine.
    with urlopen(f"{live_server.url}/accounts/login/", timeout=60):
        pass
    with running(
        elsewhere(
            "--portal",
            live_server.url,
            ARCHIVE_PORTAL_TOKEN_FILE=str(tmp_path / "token"),
            MASKING_KEY=KEY,
        )
    ):
        wait_for(lambda: archived() == 1)
        wait_for(
            lambda: Heartbeat.objects.filter(
                name="capture alps on scheduler-1", detail__host="scheduler-1"
            ).exists()
        )
        write_job(spool, 2)
        wait_for(lambda: archived() == 2)
    first, second = ArchivedJob.objects.select_related("script", "environment").order_by("job_id")
    assert (first.masked_names, b"1234" in read_blob(first.environment)) == (["PIN"], False)
    assert (read_blob(second.script), read_blob(second.environment)) == (
        script_of(2),
        environment_bytes(),
    )
