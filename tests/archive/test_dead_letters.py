"""Jobs that a sink does not take: kept with the reason, listed, tried again, dropped on demand."""

import sqlite3
import threading
from contextlib import closing

import pytest

from apps.archive.capture.delivery.drain import REST_SECONDS, Drain
from apps.archive.capture.journal.journal import DeadLetters, Journal, JournalError
from apps.archive.sinks.base import SinkUnavailable
from tests.factories.archive import captured_job, with_identity


class Choosy:
    """Takes what it is told to."""

    name = "choosy"

    def __init__(self):
        self.refuses = set()
        self.away = False
        self.taken = []

    def write(self, jobs):
        if self.away:
            raise SinkUnavailable("away")
        refused = {n: f"not {job.job_id}" for n, job in enumerate(jobs) if job.job_id in self.refuses}
        self.taken += [job.job_id for n, job in enumerate(jobs) if n not in refused]
        return refused

    def close(self):
        pass


@pytest.fixture
def journal(tmp_path):
    with closing(Journal(tmp_path / "journal", sinks=["choosy", "other"])) as journal:
        yield journal


@pytest.fixture
def sink():
    return Choosy()


@pytest.fixture
def letters(journal):
    with closing(DeadLetters(journal.directory)) as letters:
        yield letters


@pytest.fixture
def drain(journal, sink):
    return Drain(journal=journal, sink=sink)


def drain_all(drain):
    drain.write_refused()
    while drain._step():
        pass


def test_more_than_a_page_are_kept_listed_and_taken_after_all(journal, sink, drain, letters):
    jobs = [captured_job(number) for number in range(1, 1301)]
    journal.add(with_identity(*jobs))
    sink.refuses = {job.job_id for job in jobs if int(job.job_id) % 2}
    drain_all(drain)
    journal.acknowledge("other", 1300)

    assert journal.refusals("choosy", newest=1) == (650, [("1299", "not 1299")])
    assert [letter.job_id for letter in letters] == [str(number) for number in range(1, 1301, 2)]
    assert {letter.reason for letter in letters} >= {"not 1"}
    assert (len(sink.taken), drain.written) == (650, 650)

    sink.refuses = {"7"}
    drain_all(drain)

    assert [(letter.sink, letter.cluster, letter.job_id) for letter in letters] == [("choosy", "alps", "7")]
    assert sorted(sink.taken, key=int) == [str(number) for number in range(1, 1301) if number != 7]


def test_refused_are_read_in_batches_of_a_bounded_size(journal, sink, drain):
    jobs = [captured_job(number, script=b"x" * 1000) for number in range(1, 11)]
    journal.add(with_identity(*jobs))
    sink.refuses = {job.job_id for job in jobs}
    drain_all(drain)

    first = journal.refused("choosy", size_bytes=3500)
    assert [entry.job.job_id for entry, _ in first] == ["1", "2", "3"]
    assert [e.job.job_id for e, _ in journal.refused("choosy", after=first[-1][0].seq, size_bytes=1)] == ["4"]


def test_newest_reason_is_kept(journal, sink, drain, letters):
    journal.add(with_identity(captured_job(1)))
    sink.refuses = {"1"}
    drain_all(drain)
    sink.write = lambda jobs: {0: "for another reason"}
    drain_all(drain)

    assert [letter.reason for letter in letters] == ["for another reason"]


def test_retry_of_a_sink_that_is_away_keeps_them(journal, sink, drain, letters):
    journal.add(with_identity(captured_job(1)))
    sink.refuses = {"1"}
    drain_all(drain)
    sink.refuses, sink.away = set(), True
    with pytest.raises(SinkUnavailable):
        drain.write_refused()

    assert [letter.job_id for letter in letters] == ["1"]


def tried_long_ago(journal, seconds):
    with closing(sqlite3.connect(journal.directory / "journal.sqlite")) as database:
        database.execute("UPDATE refusal SET tried_at = tried_at - ?", (seconds,))
        database.commit()


def run_until_idle(drain):
    """Start a drain as capture does, and stop it when it has nothing more to do."""
    stopping = threading.Event()

    class Idle:
        def wait(self, seconds):
            stopping.set()

        def clear(self):
            pass

    drain.wake = Idle()
    drain.run(stopping)


@pytest.mark.parametrize(
    ("rested", "asked", "tried"),
    [(0, False, False), (REST_SECONDS + 60, False, True), (-REST_SECONDS - 60, False, True), (0, True, True)],
    ids=["just refused", "a day ago", "by a clock that was ahead", "asked for"],
)
def test_starts_of_capture_do_not_send_the_refused_again_unless_they_rested(journal, sink, drain, rested, asked, tried):
    journal.add(with_identity(*(captured_job(number) for number in (1, 2, 3))))
    sink.refuses = {"1", "2"}
    drain_all(drain)
    tried_long_ago(journal, rested)
    sink.refuses, sink.taken = {"2"}, []
    for _ in range(2):
        again = Drain(journal=journal, sink=sink)
        if asked:
            again.retry_refused.set()
        run_until_idle(again)

    assert sink.taken == (["1"] if tried else [])
    assert [entry.job.job_id for entry, _ in journal.refused("choosy")] == (["2"] if tried else ["1", "2"])


def test_dropped_are_given_up_while_capture_runs(journal, sink, drain, letters):
    journal.add(with_identity(*(captured_job(number) for number in range(1, 5))))
    sink.refuses = {"1", "2", "3"}
    drain_all(drain)
    journal.refuse("other", journal.pending("other")[0], "neither")

    assert letters.drop(sink="choosy", job_id="2") == 1
    assert [(letter.sink, letter.job_id) for letter in letters] == [("choosy", "1"), ("choosy", "3"), ("other", "1")]
    assert letters.drop(sink="nowhere") == 0
    assert letters.drop(sink="choosy") == 2
    journal.acknowledge("other", 4)
    assert [entry.job.job_id for entry, _ in journal.refused("other")] == ["1"]
    assert letters.drop() == 1


def test_no_journal_is_said_so(tmp_path):
    with pytest.raises(JournalError, match="there is no journal"):
        DeadLetters(tmp_path)
