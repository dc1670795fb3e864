"""What may go wrong around capture: after each, every job that can be read is kept once, and the rest is named."""

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from apps.archive.capture.delivery.drain import FIRST_DELAY_SECONDS
from apps.archive.capture.delivery.isolation import Nursery
from apps.archive.capture.journal.journal import RESERVE_BYTES, Journal, running_capture
from apps.archive.domain.store.contents import read_blob
from apps.archive.models import ArchivedJob
from apps.archive.sinks.base import SinkUnavailable
from apps.clusters.schedulers.slurm.spool import SlurmSpool
from dev.postgres import Postgres
from dev.processes import guard, spawn
from tests.factories.archive import captured_job, with_identity
from tests.small_disk import small_disk

from .capturing import MemorySink, capture_of, draining, running
from .conftest import ROOT, wait_for
from .spool_writer import environment_bytes, job_directory, script_of, write_job

KILLS = 100
# Has imported everything once, and starts a capture for each line that it reads.
STARTER = """
import os, sys, django
django.setup()
from django.core.management import call_command, load_command_class
load_command_class("apps.archive", "capture")
for _ in sys.stdin:
    pid = os.fork()
    if not pid:
        sys.stdin.close()
        print("pid", os.getpid(), flush=True)
        call_command(*sys.argv[1:])
    os.waitpid(pid, 0)
"""


def assert_kept(job_ids, portal):
    """Every one of these jobs is in the archive once, and its bytes are those of its spool."""
    listed = portal.listed()
    environment = hashlib.sha256(environment_bytes()).hexdigest()
    assert {(job["job_id"], job["script_sha256"], job["environment_sha256"]) for job in listed} == {
        (str(job_id), hashlib.sha256(script_of(job_id)).hexdigest(), environment) for job_id in job_ids
    }
    assert len(listed) == len(job_ids)
    portal.run("archive", "verify")


def make_hash_directories(spool):
    for digit in range(10):
        (spool / f"hash.{digit}").mkdir()


@contextmanager
def writing(spool, pause):
    """Write jobs from 1 on until the end, and yield their list."""
    make_hash_directories(spool)
    written, enough = [], threading.Event()

    def write():
        while not enough.wait(pause):
            write_job(spool, len(written) + 1)
            written.append(len(written) + 1)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield written
    finally:
        enough.set()
        writer.join()


@contextmanager
def starter(portal, *arguments):
    """Yield what starts a capture, as `manage.py` does but sooner, and returns its process once it captures."""
    process = subprocess.Popen(
        [sys.executable, "-c", STARTER, *map(str, arguments)],
        env=portal.environment,
        cwd=ROOT,
        text=True,
        bufsize=1,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )

    def start():
        process.stdin.write("\n")
        pid = int(process.stdout.readline().removeprefix("pid "))
        assert process.stdout.readline() == "capturing the jobs of alps\n"
        return pid

    with process:
        yield start
        process.stdin.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_hundred_kills_under_load_lose_and_double_nothing(portal, spool):
    moments = random.Random(4)
    with writing(spool, 0.02) as written, starter(portal, *portal.capture(spool)) as start:
        for _ in range(KILLS):
            pid = start()
            time.sleep(moments.uniform(0, 0.4))
            os.kill(pid, signal.SIGKILL)

    assert ArchivedJob.objects.exists(), "none of them lived long enough"
    portal.run(*portal.capture(spool, "--once"))

    assert_kept(written, portal)


def test_capture_ends_when_the_process_of_its_journal_was_killed(portal, spool):
    write_job(spool, 1)
    with portal.capturing(spool, "--rescan-seconds", "0.5") as capture:
        wait_for(lambda: ArchivedJob.objects.count() == 1)
        os.kill(running_capture(Path(portal.environment["VAR_DIR"]) / "journal/alps"), signal.SIGKILL)
        write_job(spool, 2)
        assert capture.wait(60) == 1
        assert b"the process of the journal has died" in capture.stderr.read()

    portal.run(*portal.capture(spool, "--once"))

    assert_kept([1, 2], portal)


@pytest.mark.slow
def test_kernel_queue_overflows_while_capture_is_stopped(portal, spool):
    """No scan is due for ten minutes: that events were lost must itself bring one."""
    jobs = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text()) + 1000
    if jobs > 50_000:
        pytest.skip(f"the kernel's queue holds {jobs} events here, which are too many directories to make")
    write_job(spool, 1)
    with portal.capturing(spool, "--rescan-seconds", "600") as capture:
        wait_for(lambda: ArchivedJob.objects.count() == 1)
        capture.send_signal(signal.SIGSTOP)
        job_ids = range(1, 10 * jobs, 10)
        for job_id in job_ids[1:]:
            write_job(spool, job_id)
        capture.send_signal(signal.SIGCONT)
        wait_for(lambda: ArchivedJob.objects.count() == len(job_ids), seconds=120)

    assert_kept(job_ids, portal)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_database_killed_under_load_and_away_for_a_minute(portal, spool, tmp_path_factory):
    base = tmp_path_factory.mktemp("pg")
    with own_postgres(base) as (start, url):
        server = start()
        own = type(portal)(portal.environment | {"DATABASE_URL": url})
        own.run("migrate", "-v0", "--skip-checks")
        with writing(spool, 0.02) as written, own.capturing(spool) as capture:
            time.sleep(2)
            server.kill()
            server.wait()
            time.sleep(60)
            start()
            time.sleep(1)
            assert capture.poll() is None

        own.run(*own.capture(spool, "--once"))

        assert_kept(written, own)


@contextmanager
def own_postgres(base):
    """Yield what starts a PostgreSQL, also again after a kill, and its URL."""
    run, sockets = base / "run", base / "s"
    run.mkdir()
    sockets.mkdir()
    watchdog = guard(run)
    postgres = Postgres(base / "data", sockets)
    postgres.prepare()

    def start():
        postgres.clear_stale()
        server = spawn("postgres", postgres.command(), run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        postgres.wait_ready(server.poll)
        postgres.create_database("opsportal")
        return server

    try:
        yield start, postgres.url("opsportal")
    finally:
        watchdog.stdin.close()
        watchdog.wait(timeout=60)


@pytest.mark.slow
def test_two_clusters_with_the_same_ids_at_once(portal, tmp_path):
    for cluster in ("alps", "jura"):
        make_hash_directories(tmp_path / cluster) if (tmp_path / cluster).mkdir() else None
        for job_id in range(1, 300):
            write_job(tmp_path / cluster, job_id)

    both = [portal.start(*portal.capture(tmp_path / name, "--once", cluster=name)) for name in ("alps", "jura")]

    assert [process.communicate(timeout=240)[0] for process in both] == [
        b"captured 299 jobs of alps\n",
        b"captured 299 jobs of jura\n",
    ]
    for cluster in ("alps", "jura"):
        assert sorted(int(job["job_id"]) for job in portal.listed(cluster)) == list(range(1, 300))


def test_hostile_spool_is_named_and_costs_the_others_nothing(portal, spool):
    """A script of 512 MB, names that are no text, an environment without its count, a file for a directory."""
    write_job(spool, 1)
    os.truncate(write_job(spool, 2) / "script", 512 * 1024 * 1024)
    (write_job(spool, 3) / "environment").write_bytes(b"USER=ana\0HOME=/home/ana\0")
    (write_job(spool, 4) / "environment").unlink()
    (job_directory(spool, 4) / "environment").mkdir()
    hash_directory = os.fsencode(spool / "hash.1")
    for name in (b"job.7\n8", b"job.\xff", b"job.9\x1b[2J", b"\xff\n"):
        os.mkdir(hash_directory + b"/" + name)  # noqa: PTH102 -- a name of bytes
    write_job(spool, 11)

    with portal.capturing(spool, "--rescan-seconds", "0.5") as capture:
        wait_for(lambda: ArchivedJob.objects.count() == 2)
        time.sleep(1)
        write_job(spool, 21)
        wait_for(lambda: ArchivedJob.objects.count() == 3)
        assert capture.poll() is None
    _, err = portal.run(*portal.capture(spool, "--once", "--patience-seconds", "1"))

    assert_kept([1, 11, 21], portal)
    assert f"not readable: {job_directory(spool, 2)}" in err
    assert "536870912 bytes, more than" in err
    assert f"incomplete: {job_directory(spool, 3)}" in err
    assert f"not readable: {job_directory(spool, 4)}" in err


def test_journal_disk_full_and_freed(tmp_path, spool):
    with small_disk(tmp_path / "disk", RESERVE_BYTES + 32 * 1024 * 1024) as disk:
        filler = disk / "filler"
        with closing(Journal(disk / "journal", sinks=["store"])) as journal:
            filler.write_bytes(bytes(31 * 1024 * 1024))
            with capturing(spool, journal) as (capture, sink):
                for job_id in range(1, 40):
                    write_job(spool, job_id, script=os.urandom(50_000))
                wait_for(lambda: "bytes free for the journal" in capture.report().last_error)
                wait_for(lambda: capture.report().waiting == 0)
                filler.unlink()
                wait_for(lambda: len(sink.jobs) == 39)
                wait_for(lambda: capture.report().last_error == "")
        assert {int(job.job_id): job.script for job in sink.jobs} == {
            job_id: (job_directory(spool, job_id) / "script").read_bytes()[:-1] for job_id in range(1, 40)
        }


def test_sink_gets_nothing_twice_where_others_fill_the_disk_to_its_last_byte(tmp_path):
    """That the sink has it cannot be noted then. A topic of Kafka would have each job as often as it was tried."""
    with small_disk(tmp_path / "disk", 8 * 1024 * 1024) as disk:

        class FillingSink(MemorySink):
            def write(self, jobs):
                with (disk / "filler").open("ab", buffering=0) as filler, suppress(OSError):
                    while filler.write(bytes(4096)):
                        pass
                return super().write(jobs)

        with closing(Journal(disk / "journal", sinks=["store"], reserve_bytes=0)) as journal:
            journal.add(with_identity(captured_job(1), captured_job(2)))
            sink = FillingSink()
            with draining(journal, sink) as drain:
                wait_for(lambda: drain.delay_seconds > FIRST_DELAY_SECONDS)  # it has failed twice
                assert "full" in drain.last_error
                (disk / "filler").unlink()
                wait_for(lambda: drain.backlog()[0] == 0)
        assert [job.job_id for job in sink.jobs] == ["1", "2"]


def test_clock_set_back_and_files_from_the_future(tmp_path, spool):
    moments = iter(datetime(2026, 11, 20, tzinfo=UTC) - timedelta(hours=hours) for hours in range(1000))
    for job_id, seconds in ((1, 5), (2, 2**32), (3, 1_700_000_000)):
        directory = write_job(spool, job_id)
        os.utime(directory / "script", (seconds, seconds))
        os.utime(directory, (seconds, seconds))
    with closing(Journal(tmp_path / "journal", sinks=["store"])) as journal:
        with capturing(spool, journal, clock=lambda: next(moments)) as (_, sink):
            wait_for(lambda: len(sink.jobs) == 3)
            shutil.rmtree(job_directory(spool, 3))
            directory = job_directory(spool, 3)
            directory.mkdir()
            (directory / "environment").write_bytes(environment_bytes())
            (directory / "script").write_bytes(b"#!/bin/sh\nearlier\n\0")
            os.utime(directory / "script", (1_600_000_000, 1_600_000_000))
            wait_for(lambda: len(sink.jobs) == 4)
        assert journal.add(with_identity(*sink.jobs)) == 0

    assert [job.script for job in sink.jobs if job.job_id == "3"] == [script_of(3), b"#!/bin/sh\nearlier\n"]


@contextmanager
def capturing(spool, journal, **changes):
    sink = MemorySink()
    with running(capture_of(SlurmSpool(spool), journal, sink, **changes), rescan_seconds=0.2) as capture:
        yield capture, sink


class DyingSink:
    """Takes its process down over job 2, and over whatever it is told."""

    name = "dying"

    def __init__(self, directory):
        self.directory = directory

    def write(self, jobs):
        for job in jobs:
            if job.job_id == "2":
                os.kill(os.getpid(), signal.SIGKILL)
            (self.directory / job.job_id).write_bytes(job.script)
        return {}

    def close(self):
        pass


def test_job_that_takes_the_process_of_the_sink_down_is_refused_alone(tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    with (
        closing(Nursery([DyingSink(kept)])) as nursery,
        closing(Journal(tmp_path / "journal", sinks=["dying"])) as journal,
    ):
        journal.add(with_identity(captured_job(1), captured_job(2), captured_job(3)))
        with draining(journal, nursery.sinks[0]) as drain:
            wait_for(lambda: drain.backlog()[0] == 0)

        assert sorted(path.name for path in kept.iterdir()) == ["1", "3"]
        ((entry, reason),) = journal.refused("dying")
        assert (entry.job.job_id, reason) == ("2", "its process died twice of writing this")


def test_process_of_a_sink_that_was_killed_is_started_anew(tmp_path):
    with closing(Nursery([DyingSink(tmp_path)])) as nursery:
        (sink,) = nursery.sinks
        with pytest.raises(SinkUnavailable, match="its process died"):
            sink.write([captured_job(2)])
        assert sink.write([captured_job(1)]) == {}
        sink.close()

    assert (tmp_path / "1").read_bytes() == script_of(1)


@pytest.mark.slow
def test_largest_script_is_archived_as_it_is(portal, spool):
    script = os.urandom(SlurmSpool(spool).max_file_bytes - 1)
    write_job(spool, 1, script=script)

    portal.run(*portal.capture(spool, "--once"))

    assert read_blob(ArchivedJob.objects.select_related("script").get().script) == script
