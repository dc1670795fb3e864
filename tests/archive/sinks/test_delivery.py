"""From the intake to the sinks: each has every job, whatever another sink,
a job or a worker does.
"""

import threading
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import count
from uuid import UUID

import pytest
from django.db import connection
from django.utils import timezone

from apps.archive import delivery, tasks
from apps.archive.domain.sinks import drop_refused, forget_sink, retry_refused
from apps.archive.models import ArchivedJob, IntakeBatch, RefusedJob, SinkDelivery, SinkState
from apps.archive.tasks import archive_batches
from apps.core.errors import InvalidTransition
from capture.wire.batches import unpack
from tests.archive.delivering import MemorySink
from tests.archive.test_intake import accept
from tests.factories.archive import captured_job

URLS = ["memory:a", "memory:b"]
pytestmark = pytest.mark.django_db


class Killed(BaseException):
    """What a worker dies of leaves no word behind."""


class DeadlySink(MemorySink):
    """Kills the worker that writes a job of its victims."""

    def __init__(self):
        super().__init__()
        self.victims, self.deaths = set(), 0

    def write(self, jobs):
        if self.victims & {job.job_id for job in jobs}:
            self.deaths += 1
            raise Killed
        return super().write(jobs)


@pytest.fixture
def sinks(settings, monkeypatch):
    """Two sinks in memory, which are those of ARCHIVE_SINKS."""
    opened = {url: DeadlySink() for url in URLS}
    for url, sink in opened.items():
        sink.name = url
    monkeypatch.setattr(delivery, "_opened", dict(opened))
    settings.ARCHIVE_SINKS = URLS
    return [*opened.values()]


@pytest.fixture
def clock():
    """Each turn of `work` is ten seconds after the one before."""
    start = timezone.now()
    return (start + timedelta(seconds=10 * n) for n in count())


@pytest.fixture
def work(clock):
    """Do what workers do, until there is nothing more to do or nothing more can be done."""

    def turns(most=50):
        for _ in range(most):
            delivery.route_batches()
            at = next(clock)
            due = delivery.due_sinks(at=at)
            with suppress(Killed):
                wrote = [delivery.deliver(sink=sink, at=at) for sink in due]
                if not any(wrote):
                    return

    return turns


def accept_each(*batches, first=1):
    for sequence, jobs in enumerate(batches, first):
        accept(*[captured_job(n) for n in jobs], sequence=sequence)


def state(sink):
    return SinkState.objects.get(name=sink.name)


def nothing_is_left():
    return not (IntakeBatch.objects.exists() or SinkDelivery.objects.exists())


def test_every_sink_has_every_job_and_the_batches_go(sinks):
    accept_each([1, 2], [3], [4, 5])
    archive_batches()
    assert [sink.ids for sink in sinks] == [[1, 2, 3, 4, 5]] * 2
    assert nothing_is_left()
    for sink in sinks:
        assert (state(sink).written, state(sink).failures, state(sink).last_error) == (5, 0, "")


def test_store_is_a_sink_like_any_other(settings):
    settings.ARCHIVE_SINKS = ["store:"]
    accept_each([1, 2])
    archive_batches()
    assert sorted(ArchivedJob.objects.values_list("job_id", flat=True)) == ["1", "2"]
    assert nothing_is_left()


def test_sink_that_is_away_holds_up_no_other_and_is_asked_ever_more_rarely(sinks, work):
    away, well = sinks
    away.away = True
    accept_each([1], [2])
    work(most=1)
    assert (well.ids, away.ids) == ([1, 2], [])
    found = state(away)
    assert (found.failures, found.last_error) == (1, "connection refused")
    assert timedelta(0) < found.retry_at - timezone.now() <= timedelta(seconds=0.5)
    assert [sink.pk for sink in delivery.due_sinks(at=timezone.now())] == []
    for _ in range(8):
        work(most=1)
    found = state(away)
    assert found.failures > 5
    assert timedelta(seconds=10) < found.retry_at - timezone.now() <= timedelta(seconds=30)
    assert set(SinkDelivery.objects.values_list("attempts", flat=True)) == {0}, "no worker died"

    accept_each([3], first=3)
    away.away = False
    work()
    assert (well.ids, away.ids) == ([1, 2, 3], [1, 2, 3])
    assert (state(away).failures, state(away).retry_at, state(away).last_error) == (0, None, "")
    assert nothing_is_left()


def test_refused_jobs_are_kept_with_the_reason_and_tried_again_on_request(sinks, work):
    picky, well = sinks
    picky.refuses = {"2", "3"}
    accept_each([1, 2, 3, 4])
    work()
    assert (picky.ids, well.ids) == ([1, 4], [1, 2, 3, 4])
    assert nothing_is_left()
    refused = RefusedJob.objects.order_by("job_id")
    assert [(job.sink.name, job.cluster, job.job_id, job.reason) for job in refused] == [
        (picky.name, "alps", "2", "not this one"),
        (picky.name, "alps", "3", "not this one"),
    ]
    assert unpack([refused[0].data]) == [captured_job(2)]

    picky.refuses = {"3"}
    assert retry_refused(sink=state(picky), by="test", at=timezone.now()) == 2
    assert not RefusedJob.objects.exists()
    work()
    assert picky.ids == [1, 2, 4]
    assert RefusedJob.objects.get().job_id == "3"
    assert drop_refused(sink=state(picky), by="test", at=timezone.now(), job_id="4") == 0
    assert drop_refused(sink=state(picky), by="test", at=timezone.now(), job_id="3") == 1
    assert well.ids == [1, 2, 3, 4], "it was not asked again"
    assert nothing_is_left()


def test_batch_that_cannot_be_unpacked_is_refused_and_stops_no_other(sinks, work):
    accept_each([1])
    accept(captured_job(2), sequence=2, data=b"no batch")
    accept_each([3], first=3)
    work()
    assert [sink.ids for sink in sinks] == [[1, 3]] * 2
    assert nothing_is_left()
    for job in RefusedJob.objects.all():
        assert job.reason.startswith("The batch cannot be unpacked: ZstdError")
        assert bytes(job.data) == b"no batch"


def test_job_that_kills_its_workers_is_found_and_refused_and_costs_no_other_job(sinks, work):
    deadly, well = sinks
    deadly.victims = {"5"}
    accept_each([1, 2], [3, 4, 5, 6], [7])
    work()
    assert (deadly.ids, well.ids) == ([1, 2, 3, 4, 6, 7], [1, 2, 3, 4, 5, 6, 7])
    refused = RefusedJob.objects.get()
    assert (refused.job_id, refused.reason) == ("5", "5 workers died while writing this job.")
    assert deadly.deaths == 7, "two of a batch, five of the job alone"
    assert nothing_is_left()


def test_what_is_written_at_once_is_bounded(sinks, monkeypatch, work):
    written = []
    monkeypatch.setattr(sinks[0], "write", lambda jobs: written.append(len(jobs)) or {})
    monkeypatch.setattr(delivery, "MOST_JOBS", 3)
    accept_each([1, 2], [3], [4, 5, 6, 7, 8], [9], [10], [11], [12])
    work()
    assert written == [3, 5, 3, 1]
    monkeypatch.setattr(delivery, "MOST_BYTES", 2 * captured_job(1).size_bytes + 10)
    accept_each([1], [2], [3], first=20)
    work()
    assert written[4:] == [2, 1]


def test_sink_that_cannot_be_opened_is_shown_and_holds_up_no_other(sinks, settings, work):
    settings.ARCHIVE_SINKS = ["kafka://", *URLS]
    accept_each([1])
    work(most=1)
    assert [sink.ids for sink in sinks] == [[1], [1]]
    broken = SinkState.objects.get(name="kafka://")
    assert broken.last_error.startswith("the kafka sink needs a topic")
    assert broken.deliveries.count() == 1


def test_sink_that_gets_nothing_more_can_be_forgotten(sinks, settings, work):
    retired, well = sinks
    retired.away = True
    accept_each([1], [2])
    work()
    with pytest.raises(InvalidTransition, match=f"{retired.name} is still in ARCHIVE_SINKS"):
        forget_sink(sink=state(retired), by="test", at=timezone.now())
    assert not nothing_is_left()
    settings.ARCHIVE_SINKS = URLS[1:]
    forget_sink(sink=state(retired), by="test", at=timezone.now())
    assert nothing_is_left()
    assert [sink.name for sink in SinkState.objects.all()] == [well.name]


def test_files_on_a_host_are_written_there():
    assert delivery.queue_of("files://disk-3/archive?period=daily") == "archive.files@disk-3"
    assert {
        delivery.queue_of(url) for url in ("files:///archive", "store:", "kafka://k:9092/jobs")
    } == {"archive"}


@contextmanager
def in_threads(*works):
    def run(work):
        try:
            work()
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.django_db(transaction=True)
def test_workers_write_to_one_sink_at_the_same_time_each_job_once(sinks, settings, monkeypatch):
    settings.ARCHIVE_SINKS = URLS[:1]
    monkeypatch.setattr(delivery, "MOST_BATCHES", 1)
    together = threading.Barrier(3, timeout=30)
    keep = sinks[0].write

    def write(jobs):
        together.wait()
        return keep(jobs)

    monkeypatch.setattr(sinks[0], "write", write)
    accept_each([1], [2], [3])
    delivery.route_batches()
    SinkState.objects.update(written_at=timezone.now())  # it answers: others may join
    monkeypatch.setattr(delivery, "_SILENT", timedelta(minutes=1))
    [sink] = delivery.due_sinks(at=timezone.now())

    def work():
        while not nothing_is_left():  # who meets the claim of another finds nothing for a moment
            delivery.deliver(sink=sink, at=timezone.now())

    with in_threads(work, work, work):
        pass
    assert sinks[0].ids == [1, 2, 3]
    assert nothing_is_left()


@pytest.mark.django_db(transaction=True)
def test_slow_sink_keeps_one_worker_busy_and_its_batch_goes_with_the_last_delivery(
    sinks, monkeypatch
):
    slow, well = sinks
    begun, go_on = threading.Event(), threading.Event()
    keep = slow.write

    def write(jobs):
        begun.set()
        assert go_on.wait(30)
        return keep(jobs)

    monkeypatch.setattr(slow, "write", write)
    monkeypatch.setattr(tasks, "TURN_SECONDS", 1)
    accept_each([1])
    with in_threads(archive_batches):
        assert begun.wait(30)
        accept_each([2], first=2)
        archive_batches()
        assert well.ids == [1, 2], (
            "it is written to by the second worker, which does not wait for the first"
        )
        assert slow.ids == []
        go_on.set()
    archive_batches()
    assert slow.ids == [1, 2]
    assert nothing_is_left()


def test_journal_of_before_is_another(sinks, work):
    accept(captured_job(1))
    work()
    accept(captured_job(1), journal=UUID(int=9))
    work()
    assert sinks[0].ids == [1, 1], "that it is one job is for the sink to see, by its key"
