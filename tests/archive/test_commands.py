"""The commands as an operator runs them: processes of their own, real PostgreSQL,
kills included.
"""

import hashlib
import json
import shutil
import signal
import threading
import time

import pytest
from django.core.management import CommandError, call_command

from apps.archive.models import ArchivedJob, Blob
from apps.core.models import Heartbeat
from tests.archive.conftest import archived, wait_for
from tests.archive.spool_writer import environment_bytes, job_directory, script_of, write_job
from tests.factories.archive import START, captured_job, store


@pytest.fixture
def archive(capsysbinary):
    """Runs `archive` in this process and returns what it wrote."""

    def run(*arguments):
        capsysbinary.readouterr()
        call_command("archive", *arguments)
        return capsysbinary.readouterr().out

    return run


def test_once_then_list_show_verify(portal, archive, spool):
    for job_id in (1, 12):
        write_job(spool, job_id)
    write_job(
        spool,
        13,
        script=b"\xff no newline",
        variables=[("OPSPORTAL_REQUEST", "X-1"), ("OPSPORTAL_STAGE", "sim")],
    )

    assert portal.capture_once(spool) == (b"captured 3 jobs of alps\n", "")

    jobs = {
        job["job_id"]: job
        for job in map(json.loads, archive("list", "--cluster", "alps").splitlines())
    }
    assert jobs.keys() == {"1", "12", "13"}
    assert jobs["12"]["script_sha256"] == hashlib.sha256(script_of(12)).hexdigest()
    assert jobs["12"]["environment_sha256"] == hashlib.sha256(environment_bytes()).hexdigest()
    assert (jobs["12"]["script_bytes"], jobs["12"]["environment_bytes"]) == (
        len(script_of(12)),
        len(environment_bytes()),
    )
    assert (jobs["13"]["request"], jobs["13"]["stage"], jobs["13"]["masked"]) == ("X-1", "sim", [])
    assert archive("show", "13", "--cluster", "alps") == b"\xff no newline"
    assert archive("show", "12", "--cluster", "alps", "--environment") == environment_bytes()
    assert archive("verify") == b"Every content is as it was stored.\n"
    assert portal.capture_once(spool) == (b"captured 0 jobs of alps\n", "")


def test_unreadable_entries_are_named_and_do_not_fail_once(portal, spool):
    write_job(spool, 1)
    (write_job(spool, 2) / "script").unlink()
    (job_directory(spool, 2) / "script").mkdir()
    (write_job(spool, 3) / "script").write_bytes(b"half")

    out, err = portal.capture_once(spool, "--patience-seconds", "2")

    assert out == b"captured 1 jobs of alps\n"
    assert f"not readable: {job_directory(spool, 2)}" in err
    assert f"incomplete: {job_directory(spool, 3)}" in err


def test_second_capture_of_the_same_journal_says_so(portal, spool):
    with portal.capturing(spool) as first:
        second = portal.start_capture(spool)
        _, err = second.communicate(timeout=60)
        assert second.returncode == 1
        assert "in use by another capture, process" in err.decode()
        assert first.poll() is None


@pytest.mark.slow
def test_kill_in_a_burst_loses_and_doubles_nothing(portal, spool):
    """2,000 jobs arrive; capture is killed twice meanwhile; then it is started once more."""
    for digit in range(10):
        (spool / f"hash.{digit}").mkdir()

    def burst():
        for job_id in range(1, 2001):
            write_job(spool, job_id)
            time.sleep(0.001)

    writer = threading.Thread(target=burst)
    with portal.capturing(spool) as first:
        writer.start()
        wait_for(lambda: archived() > 100)
        first.kill()
    with portal.capturing(spool) as second:
        wait_for(lambda: archived() > 500)
        second.kill()
    writer.join()

    portal.capture_once(spool)

    listed = {
        (job["job_id"], job["script_sha256"], job["environment_sha256"]) for job in portal.listed()
    }
    environment = hashlib.sha256(environment_bytes()).hexdigest()
    assert listed == {
        (str(i), hashlib.sha256(script_of(i)).hexdigest(), environment) for i in range(1, 2001)
    }
    assert ArchivedJob.objects.count() == 2000
    portal.archive("verify")


def test_portal_away_then_back(portal, archive, spool):
    """The journal keeps what the store lacks; also after the spool has dropped it."""
    write_job(spool, 1)
    away = portal.start_capture(
        spool, "--once", "--patience-seconds", "1", "--portal", "http://127.0.0.1:1"
    )
    _, err = away.communicate(timeout=60)
    assert away.returncode == 1
    assert b"1 jobs stay in the journal: http://127.0.0.1:1 cannot be reached" in err
    shutil.rmtree(job_directory(spool, 1))

    portal.capture_once(spool)

    assert archive("show", "1", "--cluster", "alps") == script_of(1)


def test_running_capture_beats_and_stops_on_sigterm(portal, spool):
    write_job(spool, 1)
    (write_job(spool, 2) / "script").unlink()
    (job_directory(spool, 2) / "script").symlink_to("/etc/shadow")
    with portal.capturing(spool, "--rescan-seconds", "0.5") as process:
        wait_for(lambda: archived() == 1)
        wait_for(lambda: Heartbeat.objects.filter(name__startswith="capture alps on ").exists())
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)

    assert (process.returncode, out) == (0, b"stopped; captured 1 jobs of alps\n")
    assert f"cannot read {job_directory(spool, 2)}/script" in err.decode()
    assert Heartbeat.objects.get().detail["portal_error"] == ""


@pytest.mark.django_db
def test_show_takes_the_newest_job_or_the_one_named(capsysbinary):

    store(captured_job(1, script=b"old"), captured_job(1, script=b"new", minutes=5))

    call_command("archive", "show", "1", "--cluster", "alps")
    call_command("archive", "show", "1", "--cluster", "alps", "--submitted-at", START.isoformat())

    assert capsysbinary.readouterr().out == b"newold"


@pytest.mark.django_db
def test_show_unknown_job_fails():
    with pytest.raises(CommandError, match="Job 7 of cluster alps is not in the archive"):
        call_command("archive", "show", "7", "--cluster", "alps")


@pytest.mark.django_db
def test_verify_fails_and_names_the_damaged_job(capsys):

    store(captured_job(1), captured_job(2))
    Blob.objects.filter(pk=ArchivedJob.objects.get(job_id="2").script_id).update(data=b"x")
    ArchivedJob.objects.filter(job_id="1").update(script_bytes=1)

    with pytest.raises(CommandError, match="2 differences"):
        call_command("archive", "verify", "--cluster", "alps")

    err = capsys.readouterr().err
    assert "(jobs: 2 on alps)" in err
    assert "job 1 on alps: its sizes" in err
    call_command("archive", "verify", "--cluster", "jura")


@pytest.mark.django_db
def test_verify_reads_descriptions_too(capsys):

    store(captured_job(1, description=b"MyType = job"))
    Blob.objects.filter(pk=ArchivedJob.objects.get().description_id).update(data=b"x")

    with pytest.raises(CommandError, match="1 differences"):
        call_command("archive", "verify", "--cluster", "alps")

    assert "(jobs: 1 on alps)" in capsys.readouterr().err


def test_list_ends_quietly_when_its_reader_does(portal, transactional_db):

    store(*(captured_job(i) for i in range(1, 2000)))
    process = portal.start("archive", "list", "--cluster", "alps")
    process.stdout.readline()
    process.stdout.close()

    assert process.wait(60) == 0
    assert process.stderr.read() == b""
    process.stderr.close()
