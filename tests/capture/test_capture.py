"""Capture without Django: a spool, a journal, and a portal in memory."""

import os
import re
import shutil
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from apps.clusters.schedulers.base import EntryUnreadable, Identity, SpoolEntry
from apps.clusters.schedulers.slurm.spool import SlurmSpool
from apps.core.domain.secrets.masking import Masker, MaskPattern
from capture import capture as capture_module
from capture.handover import HandOver
from capture.journal.journal import Journal
from capture.masking_rules import KeptRules
from capture.queues import WaitingEntries
from capture.watch import watcher as watcher_module
from capture.watch.watcher import Watcher
from capture.wire.batches import unpack
from tests.archive.conftest import wait_for
from tests.archive.spool_writer import environment_bytes, job_directory, script_of, write_job
from tests.factories.archive import captured_job, with_identity

from .capturing import MemoryPortal, capture_of, make_masker, running


@pytest.fixture
def portal():
    return MemoryPortal()


@pytest.fixture
def make_capture(spool, journal, portal):
    def make(**changes):
        return capture_of(SlurmSpool(spool), journal, portal, **changes)

    return make


def test_once_captures_what_is_there(make_capture, spool, portal):
    for job_id in (1, 12, 123):
        write_job(spool, job_id)

    capture = make_capture()
    capture.run_once()

    assert capture.captured == 3
    assert {int(job.job_id): job.script for job in portal.jobs} == {
        i: script_of(i) for i in (1, 12, 123)
    }
    assert {job.environment for job in portal.jobs} == {environment_bytes()}


def test_request_and_stage_come_from_the_environment(make_capture, spool, portal):
    write_job(spool, 1, variables=[("OPSPORTAL_REQUEST", "NOVA-0231"), ("OPSPORTAL_STAGE", "sim")])

    make_capture().run_once()

    assert [(job.request_key, job.stage) for job in portal.jobs] == [("NOVA-0231", "sim")]


def test_secret_never_reaches_the_journal(make_capture, spool, portal, journal):
    write_job(spool, 1, variables=[("A", "1"), ("MY_TOKEN", "geheim==x"), ("B", "2")])
    portal.away = True

    make_capture().run_once(patience_seconds=1)

    (job,) = unpack([journal.next().content])
    assert job.masked_names == ("MY_TOKEN",)
    assert b"geheim" not in b"".join(path.read_bytes() for path in journal.directory.iterdir())
    assert job.environment == environment_bytes(
        [
            ("A", "1"),
            ("MY_TOKEN", Masker(names="x", key=b"key").fingerprint(b"geheim==x")),
            ("B", "2"),
        ]
    )


@pytest.mark.parametrize(
    "script",
    [
        b"",
        b"#!/bin/sh\n\xe9\xff",
        b"no newline at the end",
        b"#!/bin/sh\r\n",
        b"\0inside\0",
        b"x" * 3_000_000,
    ],
    ids=["empty", "latin-1", "no newline", "crlf", "NUL", "large"],
)
def test_bytes_come_through_as_they_are(make_capture, spool, portal, script):
    variables = [("F", "() {\n  a=b\n}"), ("LATIN", b"\xe9\xff"), ("EMPTY", "")]
    write_job(spool, 1, script=script, variables=variables)

    make_capture().run_once()

    assert [(job.script, job.environment) for job in portal.jobs] == [
        (script, environment_bytes(variables))
    ]


def test_second_run_reads_nothing_again(make_capture, spool, portal):
    write_job(spool, 1)
    make_capture().run_once()

    class Unread(SlurmSpool):
        def read(self, entry):
            raise AssertionError("read again")

    again = make_capture(spool=Unread(spool))
    again.run_once()

    assert again.captured == 0
    assert again.report().unreadable == {}
    assert portal.ids == [1]


def test_touched_directory_is_not_captured_twice(make_capture, spool, portal):
    os.utime(write_job(spool, 1), (1, 1))
    make_capture().run_once()
    os.utime(job_directory(spool, 1), (2, 2))

    again = make_capture()
    again.run_once()

    assert again.captured == 0
    assert portal.ids == [1]


def test_id_used_again_is_another_job(make_capture, spool, portal):
    directory = write_job(spool, 1)
    make_capture().run_once()
    shutil.rmtree(directory)
    write_job(spool, 1, script=b"#!/bin/sh\nother\n")
    os.utime(directory / "script", (5, 5))

    make_capture().run_once()

    assert [job.script for job in portal.jobs] == [script_of(1), b"#!/bin/sh\nother\n"]
    assert len({job.submitted_at for job in portal.jobs}) == 2


def test_running_capture_follows_events_and_new_hash_directories(
    make_capture, spool, portal, watch
):
    write_job(spool, 1)
    with running(make_capture(watch=watch)):
        wait_for(lambda: portal.ids == [1])
        write_job(spool, 11)
        write_job(spool, 2)
        write_job(spool, 12)
        wait_for(lambda: portal.ids == [1, 2, 11, 12])


def test_hash_directory_made_anew_is_watched_anew(make_capture, spool, portal, watch):
    write_job(spool, 1)
    with running(make_capture(watch=watch)):
        wait_for(lambda: portal.ids == [1])
        shutil.rmtree(spool / "hash.1")
        write_job(spool, 11)
        wait_for(lambda: portal.ids == [1, 11])
        write_job(spool, 21)
        wait_for(lambda: portal.ids == [1, 11, 21])


def test_spool_made_anew_with_the_inode_of_the_old_one_is_watched_anew(spool, watch, monkeypatch):
    # The file system ext4 reuses inodes.
    monkeypatch.setattr(watcher_module, "identity_of", lambda path: Identity(1, 1))
    told = threading.Event()
    watcher = Watcher(
        spool=SlurmSpool(spool), waiting=WaitingEntries(), rescan=told.set, watch=watch
    )
    try:
        watcher.refresh()
        shutil.rmtree(spool)
        watcher.follow(timeout=5)  # the end of a watch comes as an event
        spool.mkdir()
        watcher.refresh()
        told.clear()
        (spool / "hash.1").mkdir()
        watcher.follow(timeout=5)
        assert told.is_set()
    finally:
        watcher.close()


def test_job_that_is_soon_gone_is_captured(make_capture, spool, portal):
    """Directories live for 0.2 s, and no scan comes to help."""
    write_job(spool, 1)
    with running(make_capture()):
        wait_for(lambda: portal.ids == [1])
        for job_id in range(11, 501, 10):
            write_job(spool, job_id)
            if job_id > 200:
                shutil.rmtree(job_directory(spool, job_id - 200))
            time.sleep(0.01)
        wait_for(lambda: portal.ids == list(range(1, 501, 10)))


def test_only_what_was_never_read_is_told_to_be_gone(make_capture, spool, portal, caplog):
    """As when a scan finds a job just before it is read, and hands it over when it is removed."""
    write_job(spool, 1)
    with running(make_capture()) as capture:
        wait_for(lambda: portal.ids == [1])
        shutil.rmtree(job_directory(spool, 1))
        for job_id in (1, 2):
            capture._waiting.add(SpoolEntry(str(job_id), job_directory(spool, job_id)))
        wait_for(lambda: "deleted before" in caplog.text)

    told = [message for message in caplog.messages if "deleted before" in message]
    assert told == [
        f"1 entries were deleted before they were read, such as {job_directory(spool, 2)}"
    ]


def test_what_an_earlier_process_has_read_is_not_told_to_be_gone(
    make_capture, spool, portal, caplog
):
    write_job(spool, 1)
    with running(make_capture()):
        wait_for(lambda: portal.ids == [1])
    capture = make_capture()
    shutil.rmtree(job_directory(spool, 1))
    for job_id in (1, 2):
        entry = SpoolEntry(str(job_id), job_directory(spool, job_id))
        capture._waiting.add(entry)
        capture.reader.read(entry)
    capture.reader._report_missed()

    assert capture.reader.missed == 1
    assert f"such as {job_directory(spool, 2)}" in caplog.text


def test_half_written_job_is_captured_when_whole(make_capture, spool, portal, watch):
    directory = job_directory(spool, 1)
    directory.mkdir(parents=True)
    with running(make_capture(watch=watch)):
        (directory / "environment").write_bytes(environment_bytes()[:10])
        write_job(spool, 2)
        wait_for(lambda: portal.ids == [2])
        (directory / "environment").write_bytes(environment_bytes())
        (directory / "script").write_bytes(b"#!/bin/sh\n")
        time.sleep(0.05)
        assert portal.ids == [2]
        (directory / "script").write_bytes(b"#!/bin/sh\n\0")
        wait_for(lambda: portal.ids == [1, 2])
    assert portal.jobs[1].script == b"#!/bin/sh\n"


def test_report_has_an_id_of_the_masking_key_and_not_the_key(make_capture):
    detail = make_capture().report().as_detail()
    assert detail["masking_key_id"] == make_masker(()).key_id
    assert detail["masking_key_id"] != Masker(names="", key=b"other").key_id
    assert re.fullmatch("[0-9a-f]{16}", detail["masking_key_id"])
    assert detail["journal_bytes"] > 0


def test_bad_entries_are_reported_and_stop_nothing(make_capture, spool, portal, tmp_path):
    secret = tmp_path / "shadow"
    secret.write_bytes(b"root:x\0")
    (write_job(spool, 1) / "script").unlink()
    (job_directory(spool, 1) / "script").symlink_to(secret)
    (write_job(spool, 2) / "script").unlink()
    (job_directory(spool, 2) / "script").mkdir()
    (spool / "hash.3").mkdir()
    (spool / "hash.3" / "job.3").symlink_to(job_directory(spool, 1))
    (spool / "hash.4").mkdir()
    (spool / "hash.4" / "job.4").write_bytes(b"")
    (spool / "hash.4" / "job.nonsense\n").mkdir()
    (write_job(spool, 5) / "environment").write_bytes(b"ab")
    write_job(spool, 6)

    capture = make_capture()
    capture.run_once(patience_seconds=2)

    assert portal.ids == [6]
    assert sorted(path.rpartition("/")[2] for path in capture.report().unreadable) == [
        "job.1",
        "job.2",
        "job.3",
        "job.4",
    ]
    assert "not a regular file" in capture.report().unreadable[str(job_directory(spool, 2))]
    assert capture.report().incomplete == [str(job_directory(spool, 5))]


def test_unreadable_entry_is_captured_once_it_may_be_read(make_capture, spool, portal):
    class Forbidding(SlurmSpool):
        forbids = True

        def read(self, entry):
            if self.forbids:
                raise EntryUnreadable(f"{entry.path}: Permission denied")
            return super().read(entry)

    write_job(spool, 1)
    forbidding = Forbidding(spool)
    with running(make_capture(spool=forbidding), rescan_seconds=0.1) as capture:
        wait_for(lambda: capture.report().unreadable)
        forbidding.forbids = False
        wait_for(lambda: portal.ids == [1])
        wait_for(lambda: capture.report().unreadable == {})


def test_unreadable_entry_is_tried_at_each_rescan_and_forgotten_when_gone(
    make_capture, spool, portal
):
    directory = write_job(spool, 1)
    (directory / "script").unlink()
    (directory / "script").mkdir()
    with running(make_capture(), rescan_seconds=0.05) as capture:
        wait_for(lambda: capture.report().unreadable)
        shutil.rmtree(directory)
        wait_for(lambda: not capture.report().unreadable)
        directory = write_job(spool, 1)
        wait_for(lambda: portal.ids == [1])


def test_adapter_that_raises_anything_stops_nothing(make_capture, spool, portal):
    class Broken(SlurmSpool):
        def read(self, entry):
            if entry.job_id == "1":
                raise RuntimeError("a bug")
            return super().read(entry)

    write_job(spool, 1)
    write_job(spool, 2)
    capture = make_capture(spool=Broken(spool))
    capture.run_once()

    assert portal.ids == [2]
    assert list(capture.report().unreadable.values()) == ["a bug"]


def test_portal_away_keeps_jobs_in_the_journal_until_it_is_back(
    make_capture, spool, portal, journal
):
    portal.away = True
    with running(make_capture()) as capture:
        write_job(spool, 1)
        wait_for(
            lambda: capture.captured == 1 and capture.report().portal_error == "connection refused"
        )
        shutil.rmtree(job_directory(spool, 1))
        assert capture.report().behind == 1
        portal.away = False
        wait_for(lambda: portal.ids == [1])
        wait_for(lambda: (capture.report().behind, capture.report().portal_error) == (0, ""))


def test_rules_are_there_before_the_first_job_is_read(make_capture, spool, portal):
    portal.rules = [MaskPattern("name", "^PIN$")]
    write_job(spool, 1, variables=[("PIN", "1234")])
    make_capture().run_once()

    assert [job.masked_names for job in portal.jobs] == [("PIN",)]


def test_rules_reach_a_running_capture_and_reports_go_out(make_capture, spool, portal, monkeypatch):
    monkeypatch.setattr(capture_module, "_REPORT_SECONDS", 0.05)
    with running(make_capture()) as capture:
        write_job(spool, 1, variables=[("PIN", "1234")])
        wait_for(lambda: portal.ids == [1])
        portal.rules = [MaskPattern("name", "^PIN$")]
        wait_for(lambda: capture._rules)
        write_job(spool, 2, variables=[("PIN", "1234")])
        wait_for(lambda: portal.ids == [1, 2])
        wait_for(lambda: portal.reports[-1]["captured"] == portal.reports[-1]["handed_over"] == 2)

    assert [job.masked_names for job in portal.jobs] == [(), ("PIN",)]


def no_disk():
    raise OSError("no disk")


def test_rules_come_where_the_journal_cannot_be_asked(make_capture, portal, journal, monkeypatch):
    monkeypatch.setattr(capture_module, "_REPORT_SECONDS", 0.05)
    with running(make_capture()) as capture:
        wait_for(lambda: portal.reports)
        monkeypatch.setattr(journal, "backlog", no_disk)
        portal.rules = [MaskPattern("name", "^PIN$")]
        wait_for(lambda: capture._rules)


def test_oldest_job_is_not_ahead_of_its_time_after_the_clock_was_set_back(
    make_capture, journal, portal
):
    portal.away = True
    journal.add(with_identity(captured_job(1, captured_at=datetime.now(UTC) + timedelta(days=1))))

    report = make_capture().report()

    assert (report.behind, report.lag_seconds) == (1, 0)


def test_spool_away_for_a_while_is_reported_and_found_again(make_capture, spool, portal, watch):
    write_job(spool, 1)
    with running(make_capture(watch=watch), rescan_seconds=0.05) as capture:
        wait_for(lambda: portal.ids == [1])
        spool.rename(spool.with_name("away"))
        wait_for(lambda: "No such file" in capture.report().last_error)
        spool.with_name("away").rename(spool)
        write_job(spool, 2)
        wait_for(lambda: portal.ids == [1, 2])
        wait_for(lambda: capture.report().last_error == "")


def test_full_waiting_list_is_made_up_for_by_a_scan(make_capture, spool, portal):
    for job_id in range(1, 41):
        write_job(spool, job_id)
    capture = make_capture()
    capture._waiting._max_entries = 5

    capture.run_once()

    assert portal.ids == list(range(1, 41))


def test_two_clusters_with_the_same_ids_are_kept_apart(make_capture, tmp_path, portal):
    for cluster in ("alps", "jura"):
        (tmp_path / cluster).mkdir()
        write_job(tmp_path / cluster, 1)
        journal = Journal(tmp_path / "journals" / cluster)
        make_capture(
            cluster=cluster,
            spool=SlurmSpool(tmp_path / cluster),
            hand_over=HandOver(journal, portal, KeptRules(journal.directory)),
        ).run_once()
        journal.close()

    assert [(job.cluster, job.job_id) for job in portal.jobs] == [("alps", "1"), ("jura", "1")]


def test_known_entries_are_forgotten_when_the_spool_drops_them(make_capture, spool, journal):
    write_job(spool, 1)
    write_job(spool, 2)
    make_capture().run_once()
    shutil.rmtree(job_directory(spool, 1))

    make_capture().run_once()

    assert set(journal.known("alps")) == {"2"}


def test_masked_value_is_masked_in_script_and_arguments_too(make_capture, spool, portal):
    variables = [
        ("SLURM_EXPORT_ENV", "API_TOKEN=s3cr3t-99"),
        ("API_TOKEN", "s3cr3t-99"),
        ("N", "1"),
    ]
    write_job(
        spool, 1, variables=variables, script=b"#!/bin/sh\ncurl -H 'X: s3cr3t-99' https://a\n"
    )
    write_job(
        spool, 2, variables=[("N", "1")], script=b"#!/bin/sh\ncurl -H 'X: s3cr3t-99' https://a\n"
    )
    make_capture().run_once()

    masked, plain = sorted(portal.jobs, key=lambda job: job.job_id)
    assert b"s3cr3t-99" not in masked.script + masked.environment
    assert masked.script.count(b"<masked:") == 1
    assert masked.masked_names == ("SLURM_EXPORT_ENV", "API_TOKEN")
    assert plain.script == b"#!/bin/sh\ncurl -H 'X: s3cr3t-99' https://a\n"
