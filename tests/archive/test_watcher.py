"""What capture does where the kernel gives it no file events."""

import errno
import os
from contextlib import closing

from apps.archive.capture import watcher
from apps.archive.capture.inotify import Inotify
from apps.archive.capture.journal.journal import Journal
from apps.clusters.schedulers.slurm.spool import SlurmSpool

from .capturing import capture_of, running
from .conftest import wait_for
from .spool_writer import write_job


def none_left():
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_spool_is_scanned_until_there_are_events(tmp_path, spool, monkeypatch):
    monkeypatch.setattr(watcher, "Inotify", none_left)
    with (
        closing(Journal(tmp_path / "journal", sinks=[])) as journal,
        running(capture_of(SlurmSpool(spool), journal), rescan_seconds=0.1) as capture,
    ):
        write_job(spool, 1)
        wait_for(lambda: capture.captured == 1)
        assert "max_user_instances" in capture.status().last_error
        monkeypatch.setattr(watcher, "Inotify", Inotify)
        wait_for(lambda: capture.status().last_error == "")
        write_job(spool, 2)
        wait_for(lambda: capture.captured == 2)
