"""While a sink waits for one batch, it may begin the next: never out of order, never left behind, never twice."""

import os
import signal
import threading
from contextlib import closing, contextmanager

import pytest

from apps.archive.capture.delivery.drain import Drain
from apps.archive.capture.delivery.isolation import Nursery
from apps.archive.capture.journal.journal import Journal
from apps.archive.sinks.base import SinkRefused, SinkUnavailable
from tests.factories.archive import captured_job, with_identity

BATCHES = [[captured_job(10 * batch + number) for number in range(3)] for batch in range(1, 5)]


class Told:
    """Notes what it is told to do; raises `error` once, at the write of `fails_at`."""

    name = "told:"

    def __init__(self, *, fails_at="", error=None, stopping=None):
        self.calls = []
        self.refuses = ""
        self._fails_at, self._error, self._stopping = fails_at, error, stopping

    def begin(self, jobs):
        self.calls.append(("begin", jobs[0].job_id))

    def write(self, jobs):
        first = jobs[0].job_id
        self.calls.append(("write", first))
        if first == self._fails_at and self._error:
            error, self._error = self._error, None
            raise error
        if self._stopping and first == "20":
            self._stopping.set()
        return {index: "no" for index, job in enumerate(jobs) if job.job_id == self.refuses}

    def close(self):
        self.calls.append(("close", ""))


class Plain(Told):
    begin = None


@pytest.fixture
def journal(tmp_path, monkeypatch):
    with closing(Journal(tmp_path / "journal", sinks=["told:"])) as journal:
        for jobs in BATCHES:
            journal.add(with_identity(*jobs))
        pending = Journal.pending
        monkeypatch.setattr(Journal, "pending", lambda *args, **kwargs: pending(*args, **{**kwargs, "jobs": 3}))
        yield journal


def drained(journal, sink, stopping=None):
    """Run a drain until the journal is empty, or told to stop; return the calls and how many jobs are left."""
    stopping = stopping or threading.Event()
    drain = Drain(journal=journal, sink=sink)
    stopped = threading.Thread(target=drain.run, args=(stopping,))
    stopped.start()
    while stopped.is_alive():
        if not drain.backlog()[0]:
            stopping.set()
            drain.wake.set()
        stopped.join(0.01)
    return sink.calls, drain.backlog()[0]


def test_next_batch_is_begun_before_the_one_before_it_is_waited_for(journal):
    calls, left = drained(journal, Told())

    assert calls == [
        ("begin", "10"),
        ("begin", "20"),
        ("write", "10"),
        ("begin", "30"),
        ("write", "20"),
        ("begin", "40"),
        ("write", "30"),
        ("write", "40"),
        ("close", ""),
    ]
    assert left == 0


def test_sink_that_begins_nothing_is_only_told_to_write(journal):
    calls, _ = drained(journal, Plain())

    assert calls == [*(("write", str(first)) for first in (10, 20, 30, 40)), ("close", "")]


def test_what_was_begun_is_ended_when_capture_stops(journal):
    stopping = threading.Event()

    calls, left = drained(journal, Told(stopping=stopping), stopping)

    assert calls[-4:] == [("begin", "30"), ("write", "20"), ("write", "30"), ("close", "")]
    assert left == 3


def test_nothing_is_begun_where_something_is_wrong(journal):
    calls, left = drained(journal, Told(fails_at="20", error=SinkUnavailable("away")))

    assert calls[5:8] == [("write", "20"), ("begin", "30"), ("begin", "40")]
    assert left == 0


def test_what_was_begun_does_not_keep_a_sink_that_is_away_from_stopping(journal):
    stopping = threading.Event()

    calls, left = drained(journal, Told(stopping=stopping, fails_at="30", error=SinkUnavailable("away")), stopping)

    assert calls[-2:] == [("write", "30"), ("close", "")]
    assert left == 6


def test_refused_of_a_batch_that_was_begun_are_kept_aside(journal):
    sink = Told()
    sink.refuses = "31"

    drained(journal, sink)

    assert [entry.job.job_id for entry, _ in journal.refused("told:")] == ["31"]


class Noting:
    """Writes to a file what its process is told; dies of `dies_of`, refuses a batch with the job `refuses`."""

    name = "noting:"

    def __init__(self, file, *, dies_of="", refuses=""):
        self._file, self._dies_of, self._refuses = file, dies_of, refuses

    def _note(self, what, jobs):
        with self._file.open("a") as file:
            file.write(f"{what} {' '.join(job.job_id for job in jobs)}\n")
        if self._dies_of in [job.job_id for job in jobs]:
            os.kill(os.getpid(), signal.SIGKILL)

    def begin(self, jobs):
        self._note("begin", jobs)

    def write(self, jobs):
        self._note("write", jobs)
        if self._refuses in [job.job_id for job in jobs]:
            raise SinkRefused("one of them")
        return {}

    def close(self):
        pass


class NotingPlain(Noting):
    begin = None


@pytest.fixture
def notes(tmp_path):
    return tmp_path / "notes"


@contextmanager
def isolated(sink):
    with closing(Nursery([sink])) as nursery, closing(nursery.sinks[0]) as isolated:
        yield isolated


@pytest.mark.parametrize(("kind", "begins"), [(Noting, ["begin 10 11 12", "begin 20 21 22"]), (NotingPlain, [])])
def test_batches_reach_the_process_of_the_sink_in_order(notes, kind, begins):
    with isolated(kind(notes)) as sink:
        sink.begin(BATCHES[0])
        sink.begin(BATCHES[1])
        sink.write(BATCHES[0])
        sink.write([captured_job(99)])  # one that was refused before
        sink.write(BATCHES[1])

    assert notes.read_text().splitlines() == [*begins, "write 10 11 12", "write 99", "write 20 21 22"]


def test_process_that_dies_of_what_it_begins_takes_the_other_batch_not_along(notes):
    with isolated(Noting(notes, dies_of="21")) as sink:
        sink.begin(BATCHES[0])
        sink.begin(BATCHES[1])
        assert sink.write(BATCHES[0]) == {}
        with pytest.raises(SinkUnavailable, match="its process died"):
            sink.write(BATCHES[1])
        with pytest.raises(SinkRefused, match="died twice"):
            sink.write(BATCHES[1])


def test_batch_after_one_that_failed_is_handed_over_again(notes):
    with isolated(Noting(notes, refuses="11")) as sink:
        sink.begin(BATCHES[0])
        sink.begin(BATCHES[1])
        with pytest.raises(SinkRefused, match="one of them"):
            sink.write(BATCHES[0])
        assert sink.write(BATCHES[1]) == {}

    assert notes.read_text().splitlines()[-1] == "write 20 21 22"


def test_batch_that_was_begun_and_never_written_is_forgotten(notes):
    with isolated(Noting(notes)) as sink:
        for batch in BATCHES[:3]:
            sink.begin(batch)
        sink.write(BATCHES[1])
        sink.write(BATCHES[0])
        sink.write(BATCHES[2])

    assert [line for line in notes.read_text().splitlines() if line.startswith("write")] == [
        "write 20 21 22",
        "write 10 11 12",
        "write 30 31 32",
    ]
