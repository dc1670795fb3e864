"""Delete expired excerpts of logs and their evidence; verdicts, groups and totals stay."""

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from apps.diagnosis.domain.reading.posted_logs import delete_unknown
from apps.diagnosis.models import Evidence, LogExcerpt, LogHarvest, PostedLog
from apps.search.domain.indexing.new_logs import forget_words

BATCH = 1000


def delete_expired(*, at: datetime, batches: int = 100) -> int:
    """Delete excerpts read more than `LOG_EXCERPT_DAYS` ago, with their evidence.

    Return the number deleted. Each batch is a transaction; rows left after `batches` are deleted in
    the next run. Posted logs of that age, and posts for unknown jobs, are deleted too.
    """
    delete_unknown(at=at)
    if not settings.LOG_EXCERPT_DAYS:
        return 0
    before = at - timedelta(days=settings.LOG_EXCERPT_DAYS)
    PostedLog.objects.filter(posted_at__lt=before).delete()
    deleted = 0
    for _ in range(batches):
        if not (count := _delete_batch(before, at)):
            break
        deleted += count
    return deleted


@transaction.atomic
def _delete_batch(before: datetime, at: datetime) -> int:
    """Delete expired rows among the oldest excerpts.

    Each analysis writes new rows, so primary keys are in order of reading.
    """
    oldest = LogExcerpt.objects.order_by("pk").values_list("harvest", "harvest__harvested_at")[
        :BATCH
    ]
    expired = {pk for pk, read_at in oldest if read_at and read_at < before}
    held = LogHarvest.objects.select_for_update(skip_locked=True).filter(
        pk__in=expired, harvested_at__lt=before
    )
    jobs = dict(held.order_by("pk").values_list("pk", "job_id"))
    harvests = list(jobs)
    forget_words(jobs.values(), at=at)
    Evidence.objects.filter(harvest__in=harvests).delete()
    return LogExcerpt.objects.filter(harvest__in=harvests).delete()[0]
