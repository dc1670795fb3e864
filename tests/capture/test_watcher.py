"""File events of a spool, from the kernel and from polling: what each tells,
and which is used where.
"""

import ctypes
import errno
import os
import subprocess
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from apps.clusters.schedulers.slurm.spool import SlurmSpool
from capture.journal.journal import Journal
from capture.queues import WaitingEntries
from capture.watch import file_systems, watcher
from capture.watch.base import FileEvent, Watch
from capture.watch.inotify import Inotify
from capture.watch.polling import Polling
from capture.watch.watcher import Watcher
from tests.archive.conftest import wait_for
from tests.archive.spool_writer import write_job
from tests.programs.remote_files import mounted

from .capturing import MemoryPortal, capture_of, running

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:20 / /proc rw,nosuid - proc proc rw
60 22 0:51 / /var/spool/slurm\\040state rw,relatime shared:30 master:2 - {type} server:/state rw,vers=4.2
61 60 0:52 / /var/spool/other rw - ext4 /dev/vdb rw
"""


class DeafInotify(Inotify):
    """As on a directory to which other hosts write."""

    def read(self, timeout):
        super().read(timeout)
        return []


@pytest.fixture
def source(watch):
    with closing(Inotify() if watch is Watch.INOTIFY else Polling()) as source:
        yield source


@pytest.fixture
def watch_spool(spool, watch):
    """Makes a watcher of the spool, and a list to which each call for a scan is added."""
    rescans, watchers = [], []

    def make(adapter, waiting, choice=watch):
        watchers.append(
            Watcher(spool=adapter, waiting=waiting, rescan=lambda: rescans.append(1), watch=choice),
        )
        watchers[-1].refresh()
        return watchers[-1], rescans

    yield make
    for each in watchers:
        each.close()


def none_left():
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def read_until(source, done, seconds=10):
    """Return the events up to the first set of them for which `done` is true."""
    events, end = [], time.monotonic() + seconds
    while not done(events):
        assert time.monotonic() < end, events
        events += source.read(0.1)
    return events


def told(events, path):
    return any(event.path == path for event in events)


def test_spool_is_scanned_until_there_are_events(tmp_path, spool, monkeypatch):
    monkeypatch.setattr(watcher, "Inotify", none_left)
    with (
        closing(Journal(tmp_path / "journal")) as journal,
        running(
            capture_of(SlurmSpool(spool), journal, MemoryPortal()), rescan_seconds=0.1
        ) as capture,
    ):
        write_job(spool, 1)
        wait_for(lambda: capture.captured == 1)
        assert "max_user_instances" in capture.report().last_error
        monkeypatch.setattr(watcher, "Inotify", Inotify)
        wait_for(lambda: capture.report().last_error == "")
        write_job(spool, 2)
        wait_for(lambda: capture.captured == 2)


def test_what_comes_into_a_directory_is_told(source, spool, tmp_path):
    source.add(spool)
    (spool / "job.1").mkdir()
    (spool / "1.SC").write_bytes(b"#!/bin/sh\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere").rename(spool / "job.2")
    (tmp_path / "2.SC.new").write_bytes(b"#!/bin/sh\n")
    (tmp_path / "2.SC.new").rename(spool / "2.SC")

    expected = {"job.1": True, "1.SC": False, "job.2": True, "2.SC": False}
    events = read_until(source, lambda events: all(told(events, spool / name) for name in expected))

    kinds = {(event.path.name, event.is_directory) for event in events if not event.written}
    assert kinds == set(expected.items())


def test_directories_are_watched_flat(source, spool):
    (spool / "hash.1").mkdir()
    source.add(spool)
    (spool / "hash.1" / "job.1").mkdir()
    (spool / "hash.2").mkdir()

    events = read_until(source, lambda events: told(events, spool / "hash.2"))

    assert not told(events, spool / "hash.1" / "job.1")


def test_file_that_is_renamed_in_a_directory_is_told_by_its_new_name(source, spool):
    (spool / "log.new").write_bytes(b"")
    source.add(spool)
    (spool / "log.new").rename(spool / "log")

    events = read_until(source, lambda events: told(events, spool / "log"))

    assert not told(events, spool / "log.new")


def test_what_takes_the_inode_of_something_gone_is_told(source, spool):
    """As on ext4, where the next job's directory often gets the inode of the last that was
    removed.
    """
    (spool / "job.1").mkdir()
    source.add(spool)
    (spool / "job.1").rmdir()
    (spool / "job.2").mkdir()

    read_until(source, lambda events: told(events, spool / "job.2"))


def test_file_that_grows_is_told(source, spool):
    with (spool / "log").open("wb", buffering=0) as log:
        source.add(spool)
        log.write(b"103 1.0 JobStatus 2\n")
        read_until(source, lambda events: told(events, spool / "log"))


def test_write_is_told_apart_from_the_end_of_writing_by_the_kernel(spool):
    with closing(Inotify()) as source, (spool / "log").open("wb", buffering=0) as log:
        source.add(spool)
        log.write(b"103 1.0 JobStatus 2\n")
        assert source.read(5) == [FileEvent(spool / "log", written=True)]
        log.close()
        assert source.read(5) == [FileEvent(spool / "log")]
        assert source.read(0) == []


def test_rename_is_told_at_once_by_the_kernel(spool, tmp_path):
    """Watchdog's emitter keeps renames for 0.5 s, to find the other half."""
    for number in range(5):
        (tmp_path / "before" / f"job.{number}").mkdir(parents=True)
    with closing(Inotify()) as source:
        source.add(spool)
        source.add(tmp_path / "before")
        waited = []
        for number in range(5):  # one of them on a busy machine too
            (tmp_path / "before" / f"job.{number}").rename(spool / f"job.{number}")
            began = time.monotonic()
            assert source.read(5) == [FileEvent(spool / f"job.{number}", is_directory=True)]
            waited.append(time.monotonic() - began)
        assert min(waited) < 0.4


def test_watch_ends_with_its_directory(source, spool):
    source.add(spool)
    assert source.has(spool)

    spool.rmdir()
    end = time.monotonic() + 10
    while source.has(spool):
        assert time.monotonic() < end
        list(source.read(0.05))

    source.remove(spool)
    spool.mkdir()
    source.add(spool)
    (spool / "hash.1").mkdir()
    read_until(source, lambda events: told(events, spool / "hash.1"))


def test_nothing_is_told_of_a_directory_that_is_no_longer_watched(source, spool, tmp_path):
    (tmp_path / "other").mkdir()
    source.add(spool)
    source.add(tmp_path / "other")
    source.remove(spool)
    assert not source.has(spool)
    (spool / "job.1").mkdir()
    (tmp_path / "other" / "job.2").mkdir()

    events = read_until(source, lambda events: told(events, tmp_path / "other" / "job.2"))

    assert not told(events, spool / "job.1")


def test_directory_that_is_not_there_cannot_be_watched(source, spool):
    with pytest.raises(FileNotFoundError):
        source.add(spool / "hash.1")
    assert not source.has(spool / "hash.1")


def test_nothing_is_left_behind_by_a_watcher_that_was_closed(spool, watch):
    def open_now():
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    before = open_now()
    for reads in (0, 1):
        source = Inotify() if watch is Watch.INOTIFY else Polling()
        source.add(spool)
        for _ in range(reads):
            list(source.read(0))
        source.close()
    assert open_now() == before


def test_directory_without_permission_cannot_be_watched(spool, monkeypatch):
    """Watchdog's `add_callback` returns -1 for this error alone, where it raises any other."""

    def forbidden(*_):
        ctypes.set_errno(errno.EACCES)
        return -1

    monkeypatch.setattr("watchdog.observers.inotify_c.inotify_add_watch", forbidden)
    with closing(Inotify()) as source:
        with pytest.raises(PermissionError, match="spool"):
            source.add(spool)
        assert not source.has(spool)


def test_overflow_of_the_kernels_queue_brings_a_scan(spool, watch_spool):
    """A queue is full of writes to two files in turn:
    the kernel makes one event of two that are alike.
    """
    watching, rescans = watch_spool(SlurmSpool(spool), WaitingEntries(), Watch.INOTIFY)
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 100_000:
        pytest.skip(f"the kernel's queue holds {limit} events here, which take long to make")
    with (spool / "a").open("wb", buffering=0) as a, (spool / "b").open("wb", buffering=0) as b:
        for _ in range(limit // 2 + 1):
            a.write(b"x")
            b.write(b"x")
    end = time.monotonic() + 30
    while not rescans and time.monotonic() < end:
        watching.follow(timeout=1)

    assert rescans == [1]


def test_index_that_grows_brings_a_scan(spool, watch_spool):
    class Indexed(SlurmSpool):
        def is_index(self, path):
            return path == self.directory / "log"

    with (spool / "log").open("wb", buffering=0) as log:
        watching, rescans = watch_spool(Indexed(spool), WaitingEntries())
        log.write(b"103 1.0 JobStatus 2\n")
        end = time.monotonic() + 10
        while not rescans and time.monotonic() < end:
            watching.follow(timeout=0.1)

    assert rescans


@pytest.mark.parametrize("network", [True, False])
def test_polling_is_added_on_network_file_systems(spool, watch_spool, monkeypatch, network):
    monkeypatch.setattr(watcher, "Inotify", DeafInotify)
    monkeypatch.setattr(watcher, "is_network", lambda directory: network)
    (spool / "hash.1").mkdir()
    waiting = WaitingEntries()
    watching, _ = watch_spool(SlurmSpool(spool), waiting, Watch.AUTO)

    write_job(spool, 1)
    end = time.monotonic() + (10 if network else 0.3)
    while not waiting and time.monotonic() < end:
        watching.follow(timeout=0.02)

    assert len(waiting) == network


def test_events_of_the_kernel_are_used_on_network_file_systems_too(spool, watch_spool, monkeypatch):
    """Most spools that lie there are written by this host,
    and many a job does not live until the next poll.
    """
    monkeypatch.setattr("capture.watch.polling.POLL_SECONDS", 600)
    monkeypatch.setattr(watcher, "is_network", lambda directory: True)
    (spool / "hash.1").mkdir()
    waiting = WaitingEntries()
    watching, _ = watch_spool(SlurmSpool(spool), waiting, Watch.AUTO)

    write_job(spool, 1)
    watching.follow(timeout=5)

    assert len(waiting) == 1


def test_directory_that_is_made_while_the_watches_are_set_is_watched(
    spool, watch_spool, monkeypatch
):
    """It has no event: it was not there when they were listed,
    and then the one it lies in was not watched yet.
    """
    adapter, waiting = SlurmSpool(spool), WaitingEntries()
    watched = adapter.watched

    def listed_too_early():
        monkeypatch.setattr(adapter, "watched", watched)
        listed = watched()
        (spool / "hash.1").mkdir()
        return listed

    monkeypatch.setattr(adapter, "watched", listed_too_early, raising=False)
    watching, _ = watch_spool(adapter, waiting)
    write_job(spool, 1)
    end = time.monotonic() + 5
    while not waiting and time.monotonic() < end:
        watching.follow(timeout=0.1)

    assert len(waiting) == 1


def test_what_another_host_writes_is_captured(tmp_path, spool, monkeypatch):
    """On a real remote file system, of which the kernel tells nothing,
    and long before the next scan.
    """
    monkeypatch.setattr("capture.watch.polling.POLL_SECONDS", 0.05)
    there, here = spool, tmp_path / "mounted"
    here.mkdir()
    with mounted(there, at=here), closing(Journal(tmp_path / "journal")) as journal:
        assert file_systems.type_of(here) == "fuse.remote"
        with (
            closing(Inotify()) as alone,
            running(capture_of(SlurmSpool(here), journal, MemoryPortal())) as capture,
        ):
            alone.add(here)
            for number, job_id in enumerate((1, 11, 2, 12), start=1):
                write_job(there, job_id)
                wait_for(lambda number=number: capture.captured == number)
            assert alone.read(0.2) == []


@pytest.mark.parametrize(
    ("type", "network"),
    [
        ("nfs4", True),
        ("nfs", True),
        ("lustre", True),
        ("gpfs", True),
        ("ceph", True),
        ("cifs", True),
        ("fuse", True),
        ("fuse.sshfs", True),
        ("fuse.glusterfs", True),
        ("ext4", False),
        ("xfs", False),
        ("tmpfs", False),
        ("overlay", False),
        ("fuseblk", False),
    ],
)
def test_network_file_systems_are_known_by_their_type(tmp_path, monkeypatch, type, network):  # noqa: A002
    (tmp_path / "mountinfo").write_text(MOUNTS.format(type=type))
    monkeypatch.setattr(file_systems, "_MOUNTS", tmp_path / "mountinfo")
    monkeypatch.setattr(file_systems, "_mount_of", lambda directory: "60")

    assert file_systems.type_of(tmp_path) == type
    assert file_systems.is_network(tmp_path) is network


@pytest.mark.parametrize("directory", ["/", "/proc/self", "/dev/shm", "/sys/kernel", "."])
def test_type_of_a_file_system_is_that_of_its_mount(directory):
    if not Path(directory).is_dir():
        pytest.skip(f"no {directory} here")
    command = [
        "findmnt",
        "--noheadings",
        "--output",
        "FSTYPE",
        "--first-only",
        "--target",
        directory,
    ]
    expected = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    assert file_systems.type_of(Path(directory)) == expected


def test_link_to_another_file_system_is_followed_and_what_is_not_there_has_no_type(tmp_path):
    (tmp_path / "link").symlink_to("/proc")

    assert file_systems.type_of(tmp_path / "link") == "proc"
    assert file_systems.type_of(tmp_path / "nowhere") == ""
    assert not file_systems.is_network(tmp_path / "nowhere")
