"""Deliver batches from the intake to the sinks at least once, each sink at its own pace.

Any number of workers may run at once. A worker claims batches of a sink in a short transaction,
then writes them in another, which locks their rows and records the result. If the worker is killed,
the locks are released, and the claim counts as an attempt that ended with a death.
"""

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from django.conf import settings
from django.db import Error, connection, transaction
from django.db.models import Exists, F, OuterRef, Q
from django.utils import timezone

from apps.archive.domain.intake import QUEUE, wake_workers
from apps.archive.domain.sinks import DELIVERIES, drop_delivered, queue_again
from apps.archive.models import CaptureHost, IntakeBatch, RefusedJob, SinkDelivery, SinkState
from apps.archive.sinks.base import BadSink, Sink, write_all
from apps.archive.sinks.registry import open_sink
from apps.core.domain.locks import is_locked_for_this_transaction
from apps.core.domain.work import BackOff
from capture.wire.batches import pack, unpack
from capture.wire.entry import CapturedJob
from capture.wire.report import printable

logger = logging.getLogger(__name__)

#: Delays after failures of a sink, in seconds.
BACK_OFF = BackOff((0.5, 1, 2, 4, 8, 16, 30))
#: Limits of a single write. A batch is written as a whole, even if it is larger.
MOST_BATCHES = 64
MOST_JOBS = 1000
MOST_BYTES = 3 * 1024 * 1024
#: Number of attempts that end with the death of a worker before a batch is split, and before a
#: single job is refused. Workers also die for other reasons, and a batch that waits long for its
#: sink is affected by several.
MOST_DEATHS = 2
MOST_DEATHS_ALONE = 5
_ROUTED_AT_ONCE = 500
#: A sink that has accepted nothing for this long keeps only one worker busy.
_SILENT = timedelta(seconds=3)
_PATIENCE_SECONDS = 60.0

_STORE = "store:"

_opened: dict[str, Sink] = {}


def opened(url: str) -> Sink:
    """Return the sink of a URL, kept open by this process. Raises `BadSink`."""
    if url not in _opened:
        _opened[url] = open_sink(url)
    return _opened[url]


def close_sinks() -> None:
    while _opened:
        _opened.popitem()[1].close()


def queue_of(url: str) -> str:
    """Return the queue of a sink's workers; files on a host are written by workers on that host."""
    parts = urlsplit(url)
    return f"{QUEUE}.files@{parts.netloc}" if parts.scheme == "files" and parts.netloc else QUEUE


@transaction.atomic
def route_batches() -> None:
    """Record that the sinks in ARCHIVE_SINKS lack each new batch."""
    new = IntakeBatch.objects.select_for_update(skip_locked=True, no_key=True).filter(routed=False)
    batches = list(new.only("captured_at").order_by("pk")[:_ROUTED_AT_ONCE])
    if not batches:
        return

    states = {_state(url) for url in settings.ARCHIVE_SINKS}
    sinks = sorted(states, key=lambda sink: sink.pk)
    deliveries = []
    for batch in batches:
        for sink in sinks:
            deliveries.append(SinkDelivery(batch=batch, sink=sink, due_at=batch.captured_at))
    SinkDelivery.objects.bulk_create(deliveries)
    IntakeBatch.objects.filter(pk__in=[batch.pk for batch in batches]).update(routed=True)


def due_sinks(*, at: datetime) -> list[SinkState]:
    """Return the sinks that lack batches and are not backing off."""
    lacking = SinkState.objects.filter(Exists(SinkDelivery.objects.filter(sink=OuterRef("pk"))))
    return list(lacking.filter(Q(retry_at=None) | Q(retry_at__lte=at)).order_by("pk"))


def deliver(*, sink: SinkState, at: datetime) -> bool:
    """Write the oldest batches that a sink lacks and no other worker is writing.

    Return whether there were any.
    """
    claimed = _claim(sink, at)
    if not claimed:
        return False
    try:
        if claimed[0].attempts > _most_deaths(claimed[0].batch):
            _isolate(sink, claimed[0], at)
        else:
            _write(sink, claimed, at)
    except Exception as error:
        # The sink, the database, or the time limit: record the failure and try again later.
        _note_failure(sink, claimed, error, at)
        return False
    return True


def _state(url: str) -> SinkState:
    """Return the row of a sink. If the sink cannot be opened now, its URL serves as its name."""
    name = url
    described = False
    with suppress(BadSink):
        sink = opened(url)
        name = sink.name
        described = bool(getattr(sink, "wants_described", False))

    facts = {"url": url, "wants_described": described}
    state, _ = SinkState.objects.get_or_create(name=name, defaults=facts)
    if (state.url, state.wants_described) != (url, described):
        SinkState.objects.filter(pk=state.pk).update(**facts)
    return state


@transaction.atomic
def _claim(sink: SinkState, at: datetime) -> list[SinkDelivery]:
    """Claim batches to be written together. A batch that killed a worker is tried alone."""
    _commit_without_waiting()  # a lost claim does no harm: the write is lost with it
    answers = not sink.failures and sink.written_at is not None and at - sink.written_at < _SILENT
    if not (_is_free(sink) or answers):
        return []
    # Unclaimed batches are due even if the clock of the host that captured them is ahead.
    due = DELIVERIES.unfinished().filter(Q(attempts=0) | Q(due_at__lte=at), sink=sink)
    batches = due.select_related("batch").defer("batch__data").order_by("batch_id")
    return DELIVERIES.claim(batches[:MOST_BATCHES], at=at, select=_written_together)


def _written_together(deliveries: list[SinkDelivery]) -> list[SinkDelivery]:
    """Return the first of these deliveries, as many as fit into one write.

    A delivery that killed a worker is written alone.
    """
    together: list[SinkDelivery] = []
    jobs = 0
    size_bytes = 0
    for delivery in deliveries:
        jobs += delivery.batch.jobs
        size_bytes += delivery.batch.size_bytes
        is_too_much = jobs > MOST_JOBS or size_bytes > MOST_BYTES
        if together and (delivery.attempts or together[0].attempts or is_too_much):
            break
        together.append(delivery)
    return together


def _is_free(sink: SinkState) -> bool:
    """Return whether no other worker writes to the sink; if so, lock it for this transaction."""
    return is_locked_for_this_transaction(f"archive.sink.{sink.pk}")


def _commit_without_waiting() -> None:
    """Commit this transaction without waiting for the disk: a busy disk would delay workers."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL synchronous_commit = off")


@transaction.atomic
def _write(sink: SinkState, claimed: Sequence[SinkDelivery], at: datetime) -> None:
    """Write the batches that are still claimed.

    Raises the exceptions of the sink; then nothing is changed.
    """
    with connection.cursor() as cursor:  # a sink may be slow
        cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
    # The store's data and this record of the write are lost together, and then written again.
    if sink.url == _STORE:
        _commit_without_waiting()
    _is_free(sink)
    batches = _held(claimed)
    capture_hosts = _capture_hosts(batches)
    jobs: list[CapturedJob] = []
    refused: list[RefusedJob] = []
    for batch in batches:
        try:
            jobs += _jobs(batch, capture_hosts)
        except Exception as error:  # its bytes may be damaged in any way
            refused.append(_refused_batch(batch, f"The batch cannot be unpacked: {error!r}"))
    reasons = write_all(opened(sink.url), jobs) if jobs else {}
    refused += [_refused_job(jobs[index], reason) for index, reason in reasons.items()]
    _finish(sink, batches, refused, at)
    SinkState.objects.filter(pk=sink.pk).update(
        written=F("written") + len(jobs) - len(reasons),
        written_at=timezone.now(),
        failures=0,
        retry_at=None,
        last_error="",
    )


@transaction.atomic
def _isolate(sink: SinkState, delivery: SinkDelivery, at: datetime) -> None:
    """Split a batch that killed workers, so that each job is tried alone; refuse a single job."""
    batches = _held([delivery])
    capture_hosts = _capture_hosts(batches)
    for batch in batches:
        refused = []
        if delivery.attempts > _most_deaths(batch) + 2:  # unpacking it kills the worker
            refused.append(_refused_batch(batch, "Workers died while unpacking this batch."))
        elif len(jobs := _jobs(batch, capture_hosts)) == 1:
            refused.append(
                _refused_job(jobs[0], f"{MOST_DEATHS_ALONE} workers died while writing this job.")
            )
        else:
            batches_of_one_job = [
                IntakeBatch(
                    cluster=job.cluster,
                    host=batch.host,
                    jobs=1,
                    size_bytes=job.size_bytes,
                    captured_at=job.captured_at,
                    data=pack([job]),
                )
                for job in jobs
            ]
            queue_again(sink, batches_of_one_job)
        _finish(sink, [batch], refused, at)


def _capture_hosts(batches: Sequence[IntakeBatch]) -> set[str]:
    """Return the hosts of these batches that are capture hosts, but not beside the portal."""
    names = {batch.host for batch in batches}
    hosts = CaptureHost.objects.filter(name__in=names, beside_portal=False)
    return set(hosts.values_list("name", flat=True))


def _jobs(batch: IntakeBatch, capture_hosts: set[str]) -> list[CapturedJob]:
    """Return the jobs of a batch. Jobs of a capture host always have it as their sender.

    Batches received before senders were recorded have none, which would count as capture beside
    the portal.
    """
    jobs = unpack([bytes(batch.data)])
    if batch.host not in capture_hosts:
        return jobs
    return [job if job.sender else replace(job, sender=batch.host) for job in jobs]


def _most_deaths(batch: IntakeBatch) -> int:
    return MOST_DEATHS if batch.jobs > 1 else MOST_DEATHS_ALONE


def _held(claimed: Sequence[SinkDelivery]) -> list[IntakeBatch]:
    """Lock the claimed deliveries that are still claimed, and return their batches.

    A slow worker may have lost some of them.
    """
    held = [delivery.batch_id for delivery in DELIVERIES.hold(claimed)]
    return list(IntakeBatch.objects.filter(pk__in=held).order_by("pk"))


def _finish(
    sink: SinkState, batches: Sequence[IntakeBatch], refused: Sequence[RefusedJob], at: datetime
) -> None:
    """Store refused jobs, and drop the batches that no sink lacks any more."""
    by_key = {(job.cluster, job.job_id, job.submitted_at): job for job in refused}
    for job in by_key.values():
        job.sink = sink
        job.tried_at = at
        logger.error("%s refuses job %s of %s: %s", sink, job.job_id, job.cluster, job.reason)
    RefusedJob.objects.bulk_create(
        by_key.values(),
        update_conflicts=True,
        unique_fields=["sink", "cluster", "job_id", "submitted_at"],
        update_fields=["reason", "data", "size_bytes", "tried_at"],
    )
    keys = [batch.pk for batch in batches]
    sink.deliveries.filter(batch__in=keys).delete()
    drop_delivered(keys)


def _note_failure(
    sink: SinkState, claimed: Sequence[SinkDelivery], error: Exception, at: datetime
) -> None:
    """Record a failure and let the sink back off.

    If the database is unavailable, wait for it, so that the failure is not taken for a worker's
    death.
    """
    reason = (str(error).strip() or repr(error)).replace("\0", "")[:500]
    if reason != sink.last_error:
        logger.warning("%s: %s; its batches wait", sink, reason)
    ends = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            with transaction.atomic():
                _back_off(sink, claimed, reason, at)
            return
        except Error:
            connection.close()
            if time.monotonic() > ends:
                raise
            time.sleep(1)


def _back_off(sink: SinkState, claimed: Sequence[SinkDelivery], reason: str, at: datetime) -> None:
    DELIVERIES.release(claimed, due_at=at, last_error=reason)
    delay = BACK_OFF.after(sink.failures + 1)
    # A failure that several workers met counts once.
    same = SinkState.objects.filter(pk=sink.pk, failures=sink.failures)
    retry_at = timezone.now() + delay
    if same.update(failures=F("failures") + 1, retry_at=retry_at, last_error=reason):
        wake_workers(queue_of(sink.url), countdown=delay.total_seconds())


def _refused_job(job: CapturedJob, reason: str) -> RefusedJob:
    return RefusedJob(
        cluster=printable(job.cluster)[:64],
        job_id=printable(job.job_id)[:200],
        submitted_at=job.submitted_at,
        size_bytes=job.size_bytes,
        reason=printable(reason)[:500],
        data=pack([job]),
    )


def _refused_batch(batch: IntakeBatch, reason: str) -> RefusedJob:
    return RefusedJob(
        cluster=batch.cluster,
        job_id=f"(batch {batch.pk})",
        submitted_at=batch.captured_at,
        size_bytes=batch.size_bytes,
        reason=printable(reason)[:500],
        data=batch.data,
    )
