import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.archive.capture.journal.journal import Journal, JournalError
from apps.archive.wire.batches import Batch
from apps.clusters.schedulers.base import Identity
from tests.factories.archive import START, captured_job, with_identity


def ids(entries):
    return [entry.job.job_id for entry in entries]


def test_pending_returns_jobs_as_they_were_added(journal):
    job = captured_job(7, request_key="NOVA-0231", stage="sim", masked_names=("TOKEN", "PASSWORD"), script=b"\xff\x00")

    journal.add(with_identity(job))

    assert [entry.job for entry in journal.pending("store")] == [job]


def test_add_counts_only_new_jobs(journal):
    first, second = captured_job(1), captured_job(2)

    assert journal.add(with_identity(first)) == 1
    assert journal.add(with_identity(first, second, second)) == 1
    assert ids(journal.pending("store")) == ["1", "2"]


def test_add_keeps_same_id_of_other_cluster_and_other_submission(journal):
    jobs = [captured_job(1), captured_job(1, cluster="jura"), captured_job(1, minutes=5)]

    assert journal.add(with_identity(*jobs)) == 3


def test_disk_without_room_takes_no_jobs_and_gives_those_it_has(tmp_path):
    with closing(Journal(tmp_path, sinks=["store"])) as roomy:
        roomy.add(with_identity(captured_job(1)))

    with closing(Journal(tmp_path, sinks=["store"], reserve_bytes=2**62)) as full:
        with pytest.raises(OSError, match="bytes free for the journal"):
            full.add(with_identity(captured_job(2)))
        (entry,) = full.pending("store")
        full.acknowledge("store", entry.seq)
        assert full.backlog("store") == (0, None)


def test_room_is_given_back_after_a_long_wait(journal):
    journal.add(with_identity(*(captured_job(i, script=os.urandom(4_000_000)) for i in range(1, 13))))
    file = journal.directory / "journal.sqlite"
    before = file.stat().st_size
    while entries := journal.pending("store", jobs=1):
        journal.acknowledge("store", entries[0].seq)

    assert file.stat().st_size < before / 4


def test_acknowledged_entry_is_dropped_but_stays_known(journal):
    job = captured_job(1)
    journal.add(with_identity(job))
    journal.acknowledge("store", journal.pending("store")[0].seq)

    assert not journal.pending("store")
    assert journal.known("alps") == {"1": Identity(1, 1)}
    assert journal.add(with_identity(job)) == 0
    assert not journal.pending("store")


def test_forget_lets_a_job_be_added_again(journal):
    journal.add(with_identity(captured_job(1), captured_job(2)))
    journal.acknowledge("store", 2)

    journal.forget("alps", ["1"])

    assert journal.known("alps") == {"2": Identity(2, 1)}


def test_known_has_the_newest_submission_of_an_id(journal):
    journal.add(Batch.of([(captured_job(1), Identity(10, 1)), (captured_job(1, minutes=5), Identity(11, 2))]))

    assert journal.known("alps") == {"1": Identity(11, 2)}


def test_entry_is_kept_until_every_sink_has_it(tmp_path):
    journal = Journal(tmp_path, sinks=["store", "files"])
    journal.add(with_identity(captured_job(1), captured_job(2)))

    journal.acknowledge("store", 2)
    journal.acknowledge("files", 1)

    assert ids(journal.pending("store")) == []
    assert ids(journal.pending("files")) == ["2"]
    assert journal.backlog("store") == (0, None)
    assert journal.backlog("files") == (1, START + timedelta(seconds=1))
    journal.close()


def test_new_sink_starts_with_what_is_kept(tmp_path):
    journal = Journal(tmp_path, sinks=["store"])
    journal.add(with_identity(captured_job(1), captured_job(2)))
    journal.acknowledge("store", 1)
    journal.close()

    journal = Journal(tmp_path, sinks=["store", "files"])

    assert ids(journal.pending("files")) == ["2"]
    assert journal.backlog("files")[0] == 1
    journal.close()


def test_sink_that_is_no_longer_given_keeps_its_entries_until_it_is_forgotten(tmp_path):
    with closing(Journal(tmp_path, sinks=["store", "old"])) as journal:
        journal.add(with_identity(captured_job(1), captured_job(2), captured_job(3)))
        journal.refuse("old", journal.pending("old")[0], "too large")
        journal.acknowledge("old", 1)
        assert journal.retired() == []

    with closing(Journal(tmp_path, sinks=["store"])) as journal:
        journal.acknowledge("store", 3)
        assert journal.retired() == ["old"]
        assert journal.backlog("old")[0] == 2
        for name in ("store", "nobody"):
            with pytest.raises(JournalError, match="no longer given: old"):
                journal.forget_sink(name)
        assert journal.forget_sink("old") == (2, 1)
        assert journal.retired() == []

    with closing(Journal(tmp_path, sinks=["store", "late"])) as journal:
        assert not journal.pending("late")


def test_refused_entry_is_kept_with_its_reason(journal):
    journal.add(with_identity(captured_job(1), captured_job(2)))
    journal.refuse("store", journal.pending("store")[0], "too large")
    journal.acknowledge("store", 2)

    assert [(entry.job.job_id, reason) for entry, reason in journal.refused("store")] == [("1", "too large")]

    journal.accept("store", 1)

    assert journal.refused("store") == []


def test_pending_is_bounded_by_count_and_bytes(journal):
    size = captured_job(1).size_bytes
    for number in range(1, 6):
        journal.add(with_identity(captured_job(number)))

    assert ids(journal.pending("store", jobs=2)) == ["1", "2"]
    assert ids(journal.pending("store", size_bytes=3 * size)) == ["1", "2", "3"]
    assert ids(journal.pending("store", size_bytes=1)) == ["1"]


def test_second_capture_of_a_journal_is_refused(journal):
    with pytest.raises(JournalError, match=f"in use by another capture, process {os.getpid()}"):
        Journal(journal.directory, sinks=["store"])


def test_journal_of_a_newer_version_is_refused(tmp_path):
    Journal(tmp_path, sinks=["store"]).close()
    with sqlite3.connect(tmp_path / "journal.sqlite") as database:
        database.execute("PRAGMA user_version = 99")
    database.close()

    with pytest.raises(JournalError, match="another version"):
        Journal(tmp_path, sinks=["store"])


def test_journal_files_are_private(journal):
    assert {path.stat().st_mode & 0o077 for path in [journal.directory, *journal.directory.iterdir()]} == {0}


KILLED_WRITER = """
import sys
from pathlib import Path
import django
django.setup()
from apps.archive.capture.journal.journal import Journal
from tests.factories.archive import captured_job, with_identity
journal = Journal(Path(sys.argv[1]), sinks=["store"])
for number in range(1, 100_000):
    journal.add(with_identity(captured_job(number)))
    print(number, flush=True)
"""


def test_added_jobs_survive_a_kill(tmp_path):
    writer = subprocess.Popen([sys.executable, "-c", KILLED_WRITER, tmp_path], stdout=subprocess.PIPE, text=True)
    lines = [writer.stdout.readline() for _ in range(20)]
    writer.kill()
    lines += writer.stdout.readlines()
    writer.wait()
    writer.stdout.close()

    journal = Journal(tmp_path, sinks=["store"])

    last = int(lines[-1])
    assert ids(journal.pending("store", jobs=100_000)) in (
        [str(number) for number in range(1, last + 1)],
        [str(number) for number in range(1, last + 2)],
    )
    journal.close()


jobs = st.builds(captured_job, st.integers(1, 4), minutes=st.integers(0, 1), cluster=st.sampled_from(["alps", "jura"]))
steps = st.one_of(
    st.tuples(st.just("add"), st.lists(jobs, max_size=4)),
    st.tuples(st.just("drain"), st.integers(1, 3), st.booleans()),
    st.tuples(st.just("crash")),
)


@settings(max_examples=60, deadline=None)
@given(history=st.lists(steps, max_size=12))
def test_no_history_loses_or_doubles_a_job(tmp_path_factory, history):
    """A drain may stop between writing and acknowledging; only then, a job may be handed out again."""
    directory = tmp_path_factory.mktemp("journal")
    journal = Journal(directory, sinks=["store"])
    added, acknowledged = [], []
    for step in history:
        match step:
            case "add", batch if batch:
                journal.add(with_identity(*batch))
                added += [job for job in dict.fromkeys(batch) if job not in added]
            case "drain", count, completed:
                entries = journal.pending("store", jobs=count)
                if entries and completed:
                    journal.acknowledge("store", entries[-1].seq)
                    acknowledged += [entry.job for entry in entries]
            case _:
                journal.close()
                journal = Journal(directory, sinks=["store"])

    rest = [entry.job for entry in journal.pending("store")]
    journal.close()

    assert acknowledged + rest == added
