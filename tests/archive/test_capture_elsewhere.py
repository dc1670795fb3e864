"""Capture on a host that has none of the servers, as an operator runs it: a process with an empty environment."""

import io
import re
import subprocess
import sys
from contextlib import closing, contextmanager

import pytest
from django.core.management import CommandError, call_command

from apps.archive.capture.journal.journal import Journal
from apps.archive.domain.capture_hosts import create_capture_host
from apps.archive.domain.store.contents import read_blob
from apps.archive.models import ArchivedJob
from apps.core.models import Heartbeat
from apps.jobs.models import MaskingRule
from tests.archive.conftest import ROOT, wait_for
from tests.archive.spool_writer import environment_bytes, script_of, write_job
from tests.factories.archive import captured_job, with_identity

KEY = {"MASKING_KEY": "k" * 50}


@pytest.fixture
def elsewhere(spool, tmp_path):
    """Starts `manage.py capture` with these variables alone."""

    def start(*arguments, **environment):
        given = ("--cluster", "alps", "--spool", spool, "--journal", tmp_path / "journal", *arguments)
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


def test_files_need_no_server_at_all(elsewhere, spool, tmp_path):
    write_job(spool, 1)
    assert result(elsewhere("--once", "--sink", f"files://{tmp_path}/archive", **KEY)) == (
        0,
        "captured 1 jobs of alps\n",
        "",
    )
    (script,) = (tmp_path / "archive").glob("alps/*/job.1_script")
    assert script.read_bytes() == script_of(1)


@pytest.mark.parametrize(
    ("sink", "environment", "why"),
    [
        ("files:///tmp", {}, "Set MASKING_KEY"),
        ("store:", KEY, "set DATABASE_URL"),
        ("portal+https://portal.example.org", KEY, "set ARCHIVE_PORTAL_TOKEN or ARCHIVE_PORTAL_TOKEN_FILE"),
        ("portal+https://me:geheim@portal.example.org", KEY, "names a user"),
    ],
)
def test_what_is_missing_is_named(elsewhere, sink, environment, why):
    code, _, err = result(elsewhere("--once", "--sink", sink, **environment))
    assert code == 1
    assert why in err
    assert "geheim" not in err


def test_sink_that_is_given_twice_is_refused(elsewhere, tmp_path):
    """Two that drain to one place would bring each job twice."""
    once, again = (f"files://{tmp_path}/{end}" for end in ("archive", "archive/?period=daily"))
    code, _, err = result(elsewhere("--once", "--sink", once, "--sink", again, **KEY))
    assert (code, err) == (1, f"CommandError: the sink files://{tmp_path}/archive?period=daily is given twice\n")


def test_all_other_commands_want_the_servers(tmp_path):
    command = [sys.executable, ROOT / "manage.py", "archive", "verify"]
    done = subprocess.run(command, env={}, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "DATABASE_URL is not set" in done.stderr


def test_jobs_and_report_reach_the_portal_and_rules_come_back(
    elsewhere, spool, tmp_path, transactional_db, live_server, at
):
    _, token = create_capture_host(name="scheduler-1", clusters=["alps"], by="test", at=at)
    MaskingRule.objects.create(applies_to="name", pattern="^PIN$")
    (tmp_path / "token").write_text(token + "\n")
    sink = live_server.url.replace("http:", "portal+http:")
    write_job(spool, 1, variables=[("PIN", "1234"), ("A", "1")])
    with running(elsewhere("--sink", sink, ARCHIVE_PORTAL_TOKEN_FILE=str(tmp_path / "token"), **KEY)):
        wait_for(lambda: ArchivedJob.objects.count() == 1)
        wait_for(
            lambda: Heartbeat.objects.filter(name="capture alps on scheduler-1", detail__host="scheduler-1").exists()
        )
        write_job(spool, 2)
        wait_for(lambda: ArchivedJob.objects.count() == 2)
    first, second = ArchivedJob.objects.select_related("script", "environment").order_by("job_id")
    assert (first.masked_names, b"1234" in read_blob(first.environment)) == (["PIN"], False)
    assert (read_blob(second.script), read_blob(second.environment)) == (script_of(2), environment_bytes())


@pytest.fixture
def refused(tmp_path):
    """A journal in which the files sink has refused two jobs."""
    name = f"files://{tmp_path}/archive?period=daily"
    with closing(Journal(tmp_path / "journal/alps", sinks=[name])) as journal:
        jobs = [captured_job(1), captured_job(2, cluster="alps")]
        journal.add(with_identity(*jobs))
        for entry in journal.pending(name):
            journal.refuse(name, entry, f"no {entry.seq}\n")
        journal.acknowledge(name, 2)
    return name


@pytest.fixture
def command(tmp_path):
    def run(*arguments):
        out, err = io.StringIO(), io.StringIO()
        given = ("--cluster", "alps", "--journal", str(tmp_path / "journal"), *arguments)
        call_command("capture", *given, stdout=out, stderr=err)
        return out.getvalue()

    return run


def test_refused_jobs_are_listed_dropped_and_tried_again(command, refused, tmp_path):
    line = f"{refused}\t1\t2026-11-20T09:12:00+00:00\t{captured_job(1).size_bytes}\tno 1\\n"
    assert command("--refused").splitlines()[0] == line
    assert command("--drop-refused", "--sink", refused, "--job", "2") == f"{refused}: 1 dropped\n"
    assert command("--retry-refused", "--sink", refused) == f"{refused}: 1 taken, 0 refused\n"
    assert command("--refused") == ""
    assert [path.name for path in (tmp_path / "archive").rglob("*_script")] == ["job.1_script"]


def test_sink_that_is_away_keeps_the_refused(command, refused, tmp_path):
    (tmp_path / "archive").write_text("no directory")
    with pytest.raises(CommandError, match="archive"):
        command("--retry-refused", "--sink", refused)
    assert len(command("--refused").splitlines()) == 2


def test_running_capture_tries_them_again_when_told(elsewhere, command, refused, tmp_path):
    (tmp_path / "archive/alps").mkdir(parents=True)
    blocked = tmp_path / "archive/alps/20261120"
    blocked.mkdir()
    for number in (1, 2):
        for stem in (f"job.{number}", f"job.{number}~20261120T091200.000000Z"):
            (blocked / f"{stem}_script").mkdir()
    process = elsewhere("--sink", refused, **KEY)
    with running(process):
        assert len(command("--refused").splitlines()) == 2
        for path in blocked.iterdir():
            path.rmdir()
        assert re.fullmatch(r"capture, process \d+, tries them again\n", command("--retry-refused", "--sink", refused))
        wait_for(lambda: command("--refused") == "")
    assert sorted(path.name for path in blocked.glob("*_script")) == ["job.1_script", "job.2_script"]


def test_sink_that_is_no_longer_given_is_told_and_forgotten_on_demand(elsewhere, command, refused, spool, tmp_path):
    write_job(spool, 7)
    other = f"files://{tmp_path}/other?period=daily"
    code, out, err = result(elsewhere("--sink", other, "--once", **KEY))
    assert (code, out) == (0, "captured 1 jobs of alps\n")
    assert f"{refused}: 1 jobs behind, 2 refused: no longer among the sinks" in err
    with closing(Journal(tmp_path / "journal/alps", sinks=[other])), pytest.raises(CommandError, match="in use"):
        command("--forget-sink", refused, "--sink", other)
    with pytest.raises(CommandError, match="none of the sinks that are no longer given"):
        command("--forget-sink", refused, "--sink", refused)
    told = f"{refused} is forgotten, with 1 jobs that it lacked and 2 that it had refused\n"
    assert command("--forget-sink", refused, "--sink", other) == told
    assert command("--refused") == ""


def test_no_journal_is_said_so(command):
    with pytest.raises(CommandError, match="there is no journal"):
        command("--refused")
