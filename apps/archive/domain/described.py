"""Jobs of which user, account or name became known after they were captured: sinks that show these get them again."""

from collections.abc import Collection

from django.conf import settings
from django.db import transaction

from apps.archive.domain.intake import wake_workers
from apps.archive.domain.sinks import queue_again
from apps.archive.domain.store.backfill import batches
from apps.archive.models import ArchivedJob, IntakeBatch, SinkState
from apps.archive.wire.batches import pack


@transaction.atomic
def send_described(*, archived: Collection[int]) -> None:
    """Queue these archived jobs, given by their ids, for the sinks that want them as they are known now."""
    sinks = SinkState.objects.filter(wants_described=True, url__in=settings.ARCHIVE_SINKS)
    if not archived or not sinks:
        return
    for batch in batches(ArchivedJob.objects.filter(pk__in=archived).order_by("pk")):
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
