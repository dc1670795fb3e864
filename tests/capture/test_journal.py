import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.clusters.schedulers.base import Identity
from capture.journal.journal import Journal, JournalError
from capture.wire.batches import Batch, unpack
from tests.factories.archive import START, captured_job, with_identity


def jobs_of(batch):
    return unpack([batch.content]) if batch else []


def drained(journal):
    """Return the jobs of all batches, which the portal takes."""
    jobs = []
    while batch := journal.next():
        jobs += jobs_of(batch)
        journal.acknowledge(batch)
    return jobs


def ids(jobs):
    return [job.job_id for job in jobs]


def test_next_returns_jobs_as_they_were_added(journal):
    job = captured_job(
        7,
        request_key="NOVA-0231",
        stage="sim",
        masked_names=("TOKEN", "PASSWORD"),
        script=b"\xff\x00",
    )

    journal.add(with_identity(job))

    assert jobs_of(journal.next()) == [job]


def test_add_counts_only_new_jobs(journal):
    first, second = captured_job(1), captured_job(2)

    assert journal.add(with_identity(first)) == 1
    assert journal.add(with_identity(first, second, second)) == 1
    assert ids(drained(journal)) == ["1", "2"]


def test_add_keeps_same_id_of_other_cluster_and_other_submission(journal):
    jobs = [captured_job(1), captured_job(1, cluster="jura"), captured_job(1, minutes=5)]

    assert journal.add(with_identity(*jobs)) == 3


def test_disk_without_room_takes_no_jobs_and_gives_those_it_has(tmp_path):
    with closing(Journal(tmp_path)) as roomy:
        roomy.add(with_identity(captured_job(1)))

    with closing(Journal(tmp_path, reserve_bytes=2**62)) as full:
        with pytest.raises(OSError, match="bytes free for the journal"):
            full.add(with_identity(captured_job(2)))
        full.acknowledge(full.next())
        assert full.backlog() == (0, None)


def test_room_is_given_back_after_a_long_wait(journal):
    for number in range(1, 13):
        journal.add(with_identity(captured_job(number, script=os.urandom(4_000_000))))
    file = journal.directory / "journal.sqlite"
    before = file.stat().st_size
    drained(journal)

    assert file.stat().st_size < before / 4


def test_acknowledged_batch_is_dropped_but_stays_known(journal):
    job = captured_job(1)
    journal.add(with_identity(job))
    journal.acknowledge(journal.next())

    assert journal.next() is None
    assert journal.known("alps") == {"1": Identity(1, 1)}
    assert journal.add(with_identity(job)) == 0
    assert journal.next() is None


def test_forget_lets_a_job_be_added_again(journal):
    journal.add(with_identity(captured_job(1), captured_job(2)))
    journal.acknowledge(journal.next())

    journal.forget("alps", ["1"])

    assert journal.known("alps") == {"2": Identity(2, 1)}


def test_known_has_the_newest_submission_of_an_id(journal):
    journal.add(
        Batch.of(
            [(captured_job(1), Identity(10, 1)), (captured_job(1, minutes=5), Identity(11, 2))]
        )
    )

    assert journal.known("alps") == {"1": Identity(11, 2)}


def test_batches_come_in_order_with_numbers_that_are_never_given_again(tmp_path):
    with closing(Journal(tmp_path)) as journal:
        journal.add(with_identity(captured_job(1), captured_job(2)))
        journal.add(with_identity(captured_job(3)))
        assert journal.backlog() == (3, START + timedelta(seconds=1))
        first = journal.next()
        assert (first.last, first.jobs) == (2, 2)
        journal.acknowledge(first)
        journal.acknowledge(journal.next())

    with closing(Journal(tmp_path)) as journal:
        journal.add(with_identity(captured_job(4)))
        assert journal.next().last == 4


def test_journal_keeps_its_id_while_a_batch_may_have_been_handed_over(tmp_path):
    """Without one it takes another: restored from a copy, it could give out numbers again."""
    with closing(Journal(tmp_path)) as journal:
        journal.add(with_identity(captured_job(1)))
        known = UUID(journal.id)
    with closing(Journal(tmp_path)) as journal:
        assert UUID(journal.id) == known
        assert journal.next().journal == journal.id
        journal.acknowledge(journal.next())
    with closing(Journal(tmp_path)) as journal:
        assert UUID(journal.id) != known


def test_batch_that_is_split_keeps_jobs_order_and_numbers(journal):
    journal.add(with_identity(*(captured_job(number) for number in range(1, 6))))
    journal.add(with_identity(captured_job(6)))

    journal.split(journal.next())
    first = journal.next()
    assert (first.last, ids(jobs_of(first)), first.size_bytes) == (
        2,
        ["1", "2"],
        2 * captured_job(1).size_bytes,
    )
    journal.split(first)

    assert journal.next().last == 1
    assert journal.backlog()[0] == 6
    assert ids(drained(journal)) == ["1", "2", "3", "4", "5", "6"]


def test_refused_batch_is_sent_again_at_the_next_start_under_a_new_number(tmp_path):
    with closing(Journal(tmp_path)) as journal:
        for number in (1, 2):
            journal.add(with_identity(captured_job(number)))
        journal.refuse(journal.next(), "too large")
        assert journal.refused() == (1, "too large")
        assert journal.backlog()[0] == 1
        assert ids(drained(journal)) == ["2"]

    with closing(Journal(tmp_path)) as journal:
        assert journal.refused() == (0, "")
        assert journal.next().last == 3
        assert ids(drained(journal)) == ["1"]


def test_second_capture_of_a_journal_is_refused(journal):
    with pytest.raises(JournalError, match=f"in use by another capture, process {os.getpid()}"):
        Journal(journal.directory)


def test_journal_of_a_newer_version_is_refused(tmp_path):
    Journal(tmp_path).close()
    with sqlite3.connect(tmp_path / "journal.sqlite") as database:
        database.execute("PRAGMA user_version = 99")
    database.close()

    with pytest.raises(JournalError, match="another version"):
        Journal(tmp_path)


def test_journal_files_are_private(journal):
    assert {
        path.stat().st_mode & 0o077 for path in [journal.directory, *journal.directory.iterdir()]
    } == {0}


KILLED_WRITER = """
import sys
from pathlib import Path
import django
django.setup()
from capture.journal.journal import Journal
from tests.factories.archive import captured_job, with_identity
journal = Journal(Path(sys.argv[1]))
for number in range(1, 100_000):
    journal.add(with_identity(captured_job(number)))
    print(number, flush=True)
"""


def test_added_jobs_survive_a_kill(tmp_path):
    writer = subprocess.Popen(
        [sys.executable, "-c", KILLED_WRITER, tmp_path], stdout=subprocess.PIPE, text=True
    )
    lines = [writer.stdout.readline() for _ in range(20)]
    writer.kill()
    lines += writer.stdout.readlines()
    writer.wait()
    writer.stdout.close()

    journal = Journal(tmp_path)

    last = int(lines[-1])
    assert ids(drained(journal)) in (
        [str(number) for number in range(1, last + 1)],
        [str(number) for number in range(1, last + 2)],
    )
    journal.close()


jobs = st.builds(
    captured_job,
    st.integers(1, 4),
    minutes=st.integers(0, 1),
    cluster=st.sampled_from(["alps", "jura"]),
)
steps = st.one_of(
    st.tuples(st.just("add"), st.lists(jobs, max_size=4)),
    st.tuples(st.just("split")),
    st.tuples(st.just("hand over"), st.booleans()),
    st.tuples(st.just("crash")),
)


@settings(max_examples=60, deadline=None)
@given(history=st.lists(steps, max_size=12))
def test_no_history_loses_or_doubles_a_job(tmp_path_factory, history):
    """It may stop between handing over and acknowledging; only then,
    a batch may be handed over again.
    """
    directory = tmp_path_factory.mktemp("journal")
    journal = Journal(directory)
    added, acknowledged = [], []
    for step in history:
        match step:
            case "add", batch if batch:
                journal.add(with_identity(*batch))
                added += [job for job in dict.fromkeys(batch) if job not in added]
            case ("split",):
                if (batch := journal.next()) and batch.jobs > 1:
                    journal.split(batch)
            case "hand over", completed:
                if (batch := journal.next()) and completed:
                    journal.acknowledge(batch)
                    acknowledged += jobs_of(batch)
            case _:
                journal.close()
                journal = Journal(directory)

    rest = drained(journal)
    journal.close()

    assert acknowledged + rest == added
