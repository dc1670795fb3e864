"""What may go wrong around capture: after each, every job that can be read is kept once,
and the rest is named.
"""

import hashlib
import os
import shutil
import signal
import threading
import time
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from apps.archive.domain.store.contents import read_blob
from apps.archive.models import ArchivedJob
from apps.clusters.schedulers.slurm.spool import SlurmSpool
from capture.journal.journal import RESERVE_BYTES, Journal
from tests.archive.conftest import archived, wait_for
from tests.archive.spool_writer import environment_bytes, job_directory, script_of, write_job
from tests.factories.archive import archive_all, with_identity
from tests.programs.small_disk import small_disk

from .capturing import MemoryPortal, capture_of, running


def assert_kept(job_ids, portal):
    """Every one of these jobs is in the archive once, and its bytes are those of its spool."""
    listed = portal.listed()
    environment = hashlib.sha256(environment_bytes()).hexdigest()
    assert {(job["job_id"], job["script_sha256"], job["environment_sha256"]) for job in listed} == {
        (str(job_id), hashlib.sha256(script_of(job_id)).hexdigest(), environment)
        for job_id in job_ids
    }
    assert len(listed) == len(job_ids)
    portal.archive("verify")


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


def test_capture_ends_when_the_process_of_its_journal_was_killed(portal, spool):
    write_job(spool, 1)
    with portal.capturing(spool, "--rescan-seconds", "0.5") as capture:
        wait_for(lambda: archived() == 1)
        lock = Path(portal.environment["VAR_DIR"]) / "journal/alps/lock"
        os.kill(int(lock.read_text()), signal.SIGKILL)
        write_job(spool, 2)
        assert capture.wait(60) == 1
        assert b"the process of the journal has died" in capture.stderr.read()

    portal.capture_once(spool)

    assert_kept([1, 2], portal)


@pytest.mark.slow
def test_kernel_queue_overflows_while_capture_is_stopped(portal, spool):
    """No scan is due for ten minutes: that events were lost must itself bring one."""
    events = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if events > 50_000:
        pytest.skip(f"the kernel's queue holds {events} events here, which are too many to make")
    write_job(spool, 1)
    with portal.capturing(spool, "--rescan-seconds", "600") as capture:
        wait_for(lambda: archived() == 1)
        capture.send_signal(signal.SIGSTOP)
        job_ids = range(1, 10_000, 10)
        for job_id in job_ids[1:500]:
            write_job(spool, job_id)
        # Fill the queue with events of another file: those of the jobs after them are lost.
        other = spool / "hash.1" / "other.1"
        other.touch()
        for number in range(events):
            other = other.rename(other.with_name(f"other.{number % 2}"))
        for job_id in job_ids[500:]:
            write_job(spool, job_id)
        capture.send_signal(signal.SIGCONT)
        wait_for(lambda: archived() == len(job_ids), seconds=120)

    assert_kept(job_ids, portal)


@pytest.mark.slow
def test_two_clusters_with_the_same_ids_at_once(portal, tmp_path):
    for cluster in ("alps", "jura"):
        make_hash_directories(tmp_path / cluster) if (tmp_path / cluster).mkdir() else None
        for job_id in range(1, 300):
            write_job(tmp_path / cluster, job_id)

    both = [
        portal.start_capture(tmp_path / name, "--once", cluster=name) for name in ("alps", "jura")
    ]

    assert [process.communicate(timeout=240)[0] for process in both] == [
        b"captured 299 jobs of alps\n",
        b"captured 299 jobs of jura\n",
    ]
    archive_all()
    for cluster in ("alps", "jura"):
        assert sorted(int(job["job_id"]) for job in portal.listed(cluster)) == list(range(1, 300))


def test_hostile_spool_is_named_and_costs_the_others_nothing(portal, spool):
    """A script of 512 MB, names that are no text, an environment without its count,
    a file for a directory.
    """
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
        wait_for(lambda: archived() == 2)
        time.sleep(1)
        write_job(spool, 21)
        wait_for(lambda: archived() == 3)
        assert capture.poll() is None
    _, err = portal.capture_once(spool, "--patience-seconds", "1")

    assert_kept([1, 11, 21], portal)
    assert f"not readable: {job_directory(spool, 2)}" in err
    assert "536870912 bytes, more than" in err
    assert f"incomplete: {job_directory(spool, 3)}" in err
    assert f"not readable: {job_directory(spool, 4)}" in err


def test_journal_disk_full_and_freed(tmp_path, spool):
    with small_disk(tmp_path / "disk", RESERVE_BYTES + 32 * 1024 * 1024) as disk:
        filler = disk / "filler"
        with closing(Journal(disk / "journal")) as journal:
            filler.write_bytes(bytes(31 * 1024 * 1024))
            with capturing(spool, journal) as (capture, portal):
                for job_id in range(1, 40):
                    write_job(spool, job_id, script=os.urandom(50_000))
                wait_for(lambda: "bytes free for the journal" in capture.report().last_error)
                wait_for(lambda: capture.report().waiting == 0)
                filler.unlink()
                wait_for(lambda: len(portal.jobs) == 39)
                wait_for(lambda: capture.report().last_error == "")
        assert {int(job.job_id): job.script for job in portal.jobs} == {
            job_id: (job_directory(spool, job_id) / "script").read_bytes()[:-1]
            for job_id in range(1, 40)
        }


def test_clock_set_back_and_files_from_the_future(tmp_path, spool):
    moments = iter(
        datetime(2026, 11, 20, tzinfo=UTC) - timedelta(hours=hours) for hours in range(1000)
    )
    for job_id, seconds in ((1, 5), (2, 2**32), (3, 1_700_000_000)):
        directory = write_job(spool, job_id)
        os.utime(directory / "script", (seconds, seconds))
        os.utime(directory, (seconds, seconds))
    with closing(Journal(tmp_path / "journal")) as journal:
        with capturing(spool, journal, clock=lambda: next(moments)) as (_, portal):
            wait_for(lambda: len(portal.jobs) == 3)
            shutil.rmtree(job_directory(spool, 3))
            directory = job_directory(spool, 3)
            directory.mkdir()
            (directory / "environment").write_bytes(environment_bytes())
            (directory / "script").write_bytes(b"#!/bin/sh\nearlier\n\0")
            os.utime(directory / "script", (1_600_000_000, 1_600_000_000))
            wait_for(lambda: len(portal.jobs) == 4)
        assert journal.add(with_identity(*portal.jobs)) == 0

    assert [job.script for job in portal.jobs if job.job_id == "3"] == [
        script_of(3),
        b"#!/bin/sh\nearlier\n",
    ]


@contextmanager
def capturing(spool, journal, **changes):
    portal = MemoryPortal()
    with running(
        capture_of(SlurmSpool(spool), journal, portal, **changes), rescan_seconds=0.2
    ) as capture:
        yield capture, portal


@pytest.mark.slow
def test_largest_script_is_archived_as_it_is(portal, spool):
    script = os.urandom(SlurmSpool(spool).max_file_bytes - 1)
    write_job(spool, 1, script=script)

    portal.capture_once(spool)

    assert read_blob(ArchivedJob.objects.select_related("script").get().script) == script
