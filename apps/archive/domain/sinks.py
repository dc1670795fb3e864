"""The sinks as people see and handle them: how far each is behind, and what it refused."""

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from apps.accounts.models import Principal
from apps.archive.domain.intake import wake_workers
from apps.archive.models import IntakeBatch, RefusedJob, SinkDelivery, SinkState
from apps.core.domain.events import publish


def queue_again(sink: SinkState, batches: Sequence[IntakeBatch]) -> None:
    """Let the sink have these batches, which no other sink lacks."""
    for batch in batches:
        batch.routed = True
    IntakeBatch.objects.bulk_create(batches)
    SinkDelivery.objects.bulk_create(SinkDelivery(batch=batch, sink=sink) for batch in batches)


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


def _batch(job: RefusedJob) -> IntakeBatch:
    return IntakeBatch(
        cluster=job.cluster,
        host="portal",
        jobs=1,
        size_bytes=job.size_bytes,
        captured_at=job.submitted_at,
        data=job.data,
    )
