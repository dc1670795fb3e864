"""Logs that are kept, or no longer kept, and not in the index yet."""

import logging
import time
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from apps.core.domain.work import BackOff, Queue
from apps.search.domain.engine.base import Engine, SearchUnavailable
from apps.search.domain.engine.chosen import engine_in_use
from apps.search.domain.logs.index_state import is_resting, note_failure, note_success
from apps.search.domain.logs.kept_texts import KeptLog, kept_of, texts_of
from apps.search.models import LogToIndex

log = logging.getLogger(__name__)

#: Number of waiting logs to index at a time, and how often a log is tried that kills its worker.
WAITING_BATCH = 25
MOST_ATTEMPTS = 5
LOGS_TO_INDEX = Queue(
    name="logs_to_index",
    title="Logs for the search",
    model=LogToIndex,
    unfinished_rows=Q(),
    back_off=BackOff((60, 600)),
    lease=timedelta(minutes=5),
)


def queue_words(job_pks: Iterable[int], *, at: datetime) -> None:
    """Queue the logs of these jobs for a worker, because extracting their words is slow."""
    rows = [LogToIndex(job_id=job_pk, due_at=at) for job_pk in sorted(job_pks)]
    LogToIndex.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["job"],
        update_fields=["due_at", "attempts", "last_error"],
    )


def forget_words(job_pks: Iterable[int], *, at: datetime) -> None:
    """Remove jobs from the index whose logs are no longer kept, now or by a worker."""
    queue_words(engine_in_use().forget(set(job_pks)), at=at)


def follow_corrected(job_pks: Iterable[int], *, at: datetime) -> None:
    """Have the logs of jobs indexed again whose records were corrected."""
    queue_words(kept_of(set(job_pks)), at=at)


def index_waiting(*, seconds: float, at: datetime) -> int:
    """Index waiting logs until none is left or the time is over; return their number.

    While the index does not answer, they stay queued.
    """
    end = time.monotonic() + seconds
    engine = engine_in_use()
    total = 0
    if is_resting(engine.name, at=at):
        return total
    try:
        while count := _index_waiting(engine, at):
            total += count
            if time.monotonic() > end:
                break
    except SearchUnavailable as error:
        log.warning("logs cannot be indexed in %s: %s", engine.name, error.reason)
    return total


def _index_waiting(engine: Engine, at: datetime) -> int:
    """Index a batch of waiting logs; return its size.

    A log that was queued again meanwhile stays queued.
    """
    due = LOGS_TO_INDEX.due(at).select_related("job")
    claimed = LOGS_TO_INDEX.claim_batch(due, most=WAITING_BATCH, at=at)
    if not claimed:
        return 0
    try:
        _index(engine, claimed, at)
    except SearchUnavailable as error:
        wait = note_failure(engine.name, error.reason, at=at)
        LOGS_TO_INDEX.release(claimed, due_at=at + wait)
        raise
    note_success(engine.name)
    return len(claimed)


@transaction.atomic
def _index(engine: Engine, claimed: list[LogToIndex], at: datetime) -> None:
    held = LOGS_TO_INDEX.hold(claimed)
    texts = texts_of([waiting.job_id for waiting in held])
    logs = []
    for waiting in held:
        if waiting.attempts <= MOST_ATTEMPTS:
            job = waiting.job
            logs.append(KeptLog(job.pk, job.ended_at, texts.get(job.pk, ()), job.experiment_id))
        else:
            log.error("logs of job %s cannot be indexed: %s", waiting.job_id, waiting.last_error)
    refused = engine.store(logs)
    done = [waiting.pk for waiting in held if waiting.job_id not in refused]
    LogToIndex.objects.filter(pk__in=done).delete()
    for waiting in held:
        if waiting.job_id in refused:
            LOGS_TO_INDEX.fail(waiting, refused[waiting.job_id], at=at)


def logs_waiting(*, at_most: int) -> int:
    """Return how many new logs are not in the index yet, counting at most `at_most`."""
    return LogToIndex.objects.all()[:at_most].count()
