"""The sinks as people see and handle them: how far each is behind, and what it refused."""

from collections.abc import Sequence
from datetime import datetime

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Exists, OuterRef

from apps.accounts.models import Principal
from apps.archive.domain.intake import wake_workers
from apps.archive.models import IntakeBatch, RefusedJob, SinkDelivery, SinkState
from apps.core.domain.events import publish
from apps.core.errors import InvalidTransition


def queue_again(sink: SinkState, batches: Sequence[IntakeBatch]) -> None:
    """Let the sink have these batches, which no other sink lacks."""
    for batch in batches:
        batch.routed = True
    IntakeBatch.objects.bulk_create(batches)
    SinkDelivery.objects.bulk_create(SinkDelivery(batch=batch, sink=sink) for batch in batches)


def drop_delivered(batches: Sequence[int]) -> None:
    """Drop those of these batches that no sink lacks any more.

    One transaction after another: of two that end the last two deliveries of a batch, the second one sees it.
    """
    same = IntakeBatch.objects.filter(pk__in=batches)
    list(same.order_by("pk").select_for_update().values_list("pk"))
    same.filter(~Exists(SinkDelivery.objects.filter(batch=OuterRef("pk"))))._raw_delete(connection.alias)


@transaction.atomic
def retry_refused(*, sink: SinkState, by: Principal, at: datetime) -> int:
    """Give the sink again what it refused; return how many jobs. What it refuses again is kept again."""
    refused = list(RefusedJob.objects.select_for_update().filter(sink=sink).order_by("pk"))
    queue_again(sink, [_batch(job) for job in refused])
    RefusedJob.objects.filter(pk__in=[job.pk for job in refused]).delete()
    publish(kind="archive.refused_retried", target=sink, by=by, at=at, data={"jobs": len(refused)})
    wake_workers()
    return len(refused)


@transaction.atomic
def drop_refused(*, sink: SinkState, by: Principal, at: datetime, job_id: str = "") -> int:
    """Give up for good what the sink refused, or what it did of one job; return how many."""
    refused = RefusedJob.objects.filter(sink=sink)
    count, _ = (refused.filter(job_id=job_id) if job_id else refused).delete()
    publish(kind="archive.refused_dropped", target=sink, by=by, at=at, data={"jobs": count})
    return count


@transaction.atomic
def forget_sink(*, sink: SinkState, by: Principal, at: datetime) -> None:
    """Give up for good what a sink lacks and has refused. Raises `InvalidTransition` where it gets batches still."""
    if sink.url in settings.ARCHIVE_SINKS:
        raise InvalidTransition(f"The sink {sink} is still in ARCHIVE_SINKS. Remove it there first.")
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
