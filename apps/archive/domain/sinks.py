"""The state of each sink: backlog and refused jobs, and actions on them."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Count, Exists, F, Func, IntegerField, Min, OuterRef, Q, Sum

from apps.accounts.models import Principal
from apps.archive.domain.intake import wake_workers
from apps.archive.domain.store import backfill
from apps.archive.models import ArchivedJob, IntakeBatch, RefusedJob, SinkDelivery, SinkState
from apps.core.domain.events import publish
from apps.core.domain.work import BackOff, Queue
from apps.core.errors import InvalidTransition
from capture.wire.batches import pack

#: A worker holds the batches that it has claimed within seconds, and for as long as the sink takes.
DELIVERIES = Queue(
    name="sinks",
    title="Batches for archive sinks",
    model=SinkDelivery,
    unfinished_rows=Q(),
    back_off=BackOff((3,)),
    lease=timedelta(seconds=3),
)
#: Number of the most recently refused jobs of a sink that are shown.
NAMED = 3


@dataclass(frozen=True, slots=True)
class SinkHealth:
    """The state of a sink: its backlog, when it retries, and the jobs that it refused."""

    sink: SinkState
    configured: bool
    behind: int
    lag_seconds: float
    retry_seconds: float
    refused: int
    last_refused: Sequence[RefusedJob]

    @property
    def state(self) -> tuple[str, str]:
        """Return the state as a CSS class and as text."""
        if self.sink.last_error:
            return "down", "unreachable"
        if self.behind:
            return "degraded", "behind"
        if self.configured:
            return ("up", "up to date")
        return ("unknown", "not configured")


def sinks_health(*, at: datetime) -> list[SinkHealth]:
    """Return the sinks that batches were routed to, by name.

    Makes two queries, and one more for each sink that refused jobs.
    """
    behind = {
        "behind": Sum("deliveries__batch__jobs"),
        "oldest": Min("deliveries__batch__captured_at"),
    }
    sinks: Iterable[Any] = SinkState.objects.annotate(**behind).order_by("name")
    refused_by_sink = dict(RefusedJob.objects.values_list("sink").annotate(Count("pk")))
    health = []
    for sink in sinks:
        lag_seconds = 0.0
        if sink.oldest:
            lag_seconds = max(0.0, (at - sink.oldest).total_seconds())
        retry_seconds = 0.0
        if sink.retry_at:
            retry_seconds = max(0.0, (sink.retry_at - at).total_seconds())
        last_refused: list[RefusedJob] = []
        if sink.pk in refused_by_sink:
            newest_first = sink.refused.defer("data").order_by("-tried_at", "-pk")
            last_refused = list(newest_first[:NAMED])
        health.append(
            SinkHealth(
                sink=sink,
                configured=sink.url in settings.ARCHIVE_SINKS,
                behind=sink.behind or 0,
                lag_seconds=lag_seconds,
                retry_seconds=retry_seconds,
                refused=refused_by_sink.get(sink.pk, 0),
                last_refused=last_refused,
            )
        )
    return health


def intake_size() -> tuple[int, int]:
    """Return the number of jobs and bytes in batches that at least one sink still lacks."""
    size = Func(F("data"), function="octet_length", output_field=IntegerField())
    totals = IntakeBatch.objects.aggregate(jobs=Sum("jobs"), bytes=Sum(size))
    return totals["jobs"] or 0, totals["bytes"] or 0


def queue_again(sink: SinkState, batches: Sequence[IntakeBatch]) -> None:
    """Queue these batches for one sink; no other sink lacks them."""
    for batch in batches:
        batch.routed = True
    IntakeBatch.objects.bulk_create(batches)
    SinkDelivery.objects.bulk_create(
        SinkDelivery(batch=batch, sink=sink, due_at=batch.captured_at) for batch in batches
    )


@transaction.atomic
def send_described(*, archived: Collection[int]) -> None:
    """Queue archived jobs whose user, account and name became known.

    Only sinks that show these facts get the jobs again. `archived` are primary keys.
    """
    sinks = SinkState.objects.filter(wants_described=True, url__in=settings.ARCHIVE_SINKS)
    if not archived or not sinks:
        return
    for batch in backfill.read_batches(ArchivedJob.objects.filter(pk__in=archived).order_by("pk")):
        if not batch.jobs:
            continue
        facts = {
            "cluster": batch.jobs[0].cluster,
            "host": "portal",
            "jobs": len(batch.jobs),
            "size_bytes": sum(job.size_bytes for job in batch.jobs),
            "captured_at": min(job.captured_at for job in batch.jobs),
            "data": pack(batch.jobs),
        }
        for sink in sinks:
            queue_again(sink, [IntakeBatch(**facts)])
    wake_workers()


def drop_delivered(batches: Sequence[int]) -> None:
    """Delete the batches that every sink has received.

    Transactions wait for each other here: of two that remove the last two deliveries of a batch,
    the second one sees that none is left.
    """
    same = IntakeBatch.objects.filter(pk__in=batches)
    list(same.order_by("pk").select_for_update().values_list("pk"))
    same.filter(~Exists(SinkDelivery.objects.filter(batch=OuterRef("pk"))))._raw_delete(
        connection.alias
    )


@transaction.atomic
def retry_refused(*, sink: SinkState, by: Principal, at: datetime) -> int:
    """Queue the jobs that a sink refused once more; return their number.

    Jobs that it refuses again are stored again.
    """
    refused = list(RefusedJob.objects.select_for_update().filter(sink=sink).order_by("pk"))
    queue_again(sink, [_batch(job) for job in refused])
    RefusedJob.objects.filter(pk__in=[job.pk for job in refused]).delete()
    publish(kind="archive.refused_retried", target=sink, by=by, at=at, data={"jobs": len(refused)})
    wake_workers()
    return len(refused)


@transaction.atomic
def drop_refused(*, sink: SinkState, by: Principal, at: datetime, job_id: str = "") -> int:
    """Delete the jobs that a sink refused, or those with one job ID; return their number."""
    refused = RefusedJob.objects.filter(sink=sink)
    count, _ = (refused.filter(job_id=job_id) if job_id else refused).delete()
    publish(kind="archive.refused_dropped", target=sink, by=by, at=at, data={"jobs": count})
    return count


@transaction.atomic
def forget_sink(*, sink: SinkState, by: Principal, at: datetime) -> None:
    """Delete a sink, its backlog and its refused jobs.

    Raises `InvalidTransition` if batches are still routed to the sink.
    """
    if sink.url in settings.ARCHIVE_SINKS:
        raise InvalidTransition(
            f"The sink {sink} is still in ARCHIVE_SINKS. Remove it there first."
        )
    publish(kind="archive.sink_forgotten", target=sink, by=by, at=at)
    lacking = list(sink.deliveries.select_for_update().values_list("batch", flat=True))
    sink.delete()
    drop_delivered(lacking)


def _batch(job: RefusedJob) -> IntakeBatch:
    return IntakeBatch(
        cluster=job.cluster,
        host="portal",
        jobs=1,
        size_bytes=job.size_bytes,
        captured_at=job.submitted_at,
        data=job.data,
    )
