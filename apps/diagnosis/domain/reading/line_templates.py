"""Templates of the lines of logs: of failed jobs when they are analysed, of others later."""

import logging
import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet

from apps.clusters.schedulers.base import JobState
from apps.core.domain.work import BackOff, Queue
from apps.diagnosis.domain.reading.attempts import attempts_by_job
from apps.diagnosis.domain.reading.job_facts import log_paths
from apps.diagnosis.domain.reading.log_ends import read_end
from apps.diagnosis.domain.reading.log_windows import block_of
from apps.diagnosis.domain.reading.output_lines import pass_outputs_on
from apps.diagnosis.engine.base import Block
from apps.diagnosis.engine.evidence.catalogue import text_of
from apps.diagnosis.engine.evidence.novelty import names_error, templates_of
from apps.diagnosis.models import CompletedLog, LogHarvest
from apps.jobs.models import Job
from apps.search.domain.templates import LogTemplates, TemplateLine, store_templates

log = logging.getLogger(__name__)

#: A missing log is tried again: file systems lag behind the scheduler.
BACK_OFF = BackOff((60, 600))
COMPLETED_LOGS = Queue(
    name="completed_logs",
    title="Logs of completed jobs",
    model=CompletedLog,
    unfinished_rows=Q(),
    back_off=BACK_OFF,
    lease=timedelta(minutes=12),
)
#: Logs of jobs that ended earlier are not read: they may be gone, and there may be millions.
NEWEST = timedelta(days=2)
BATCH = 100


def template_lines(blocks: Iterable[Block]) -> dict[int, TemplateLine]:
    """Return the templates of one job's logs, by hash."""
    lines = {}
    for number, template in templates_of(blocks).items():
        lines[number] = TemplateLine(text_of(template), names_error(template))
    return lines


def queue_completed(*, job_pks: Iterable[int], at: datetime) -> int:
    """Queue the logs of these jobs that completed lately; return their number. Idempotent."""
    if not settings.READ_COMPLETED_LOGS:
        return 0
    jobs = Job.objects.filter(
        pk__in=job_pks, state=JobState.COMPLETED, ended_at__gte=at - NEWEST, templates=None
    )
    rows = [CompletedLog(job_id=pk, due_at=at) for pk in jobs.values_list("pk", flat=True)]
    CompletedLog.objects.bulk_create(rows, ignore_conflicts=True)
    return len(rows)


def read_completed_for(*, seconds: float, at: datetime) -> int:
    """Read the logs of completed jobs until none wait or the time is over; return how many."""
    end = time.monotonic() + seconds
    total = 0
    while count := read_completed_batch(at=at):
        total += count
        if time.monotonic() > end:
            break
    return total


def read_completed_batch(*, at: datetime) -> int:
    """Store the templates of completed jobs that have waited longest; return the number of jobs.

    A log that cannot be read is tried again, and then left out. Any number of workers may run this
    at once.
    """
    waiting = COMPLETED_LOGS.due(at).select_related("job__cluster", "job__experiment")
    claimed = COMPLETED_LOGS.claim_batch(waiting, most=BATCH, at=at)
    attempts = attempts_by_job([completed_log.job for completed_log in claimed])
    read = {}
    missing = []
    for completed_log in claimed:
        may_try_again = completed_log.attempts <= len(BACK_OFF.seconds)
        blocks: Sequence[Block] = ()
        if may_try_again or completed_log.last_error:
            blocks = _blocks_of(completed_log.job, attempts[completed_log.job_id])
        if blocks:
            read[completed_log.pk] = LogTemplates(completed_log.job, template_lines(blocks))
            pass_outputs_on(completed_log.job, blocks, at=at)
        elif may_try_again and log_paths(completed_log.job):
            missing.append(completed_log)

    with transaction.atomic():
        held = {completed_log.pk for completed_log in COMPLETED_LOGS.hold(claimed)}
        store_templates([log for pk, log in read.items() if pk in held], at=at)
        kept = [completed_log.pk for completed_log in missing]
        CompletedLog.objects.filter(pk__in=held).exclude(pk__in=kept).delete()
        for completed_log in missing:
            COMPLETED_LOGS.fail(completed_log, "The log cannot be read.", at=at)
    return len(claimed)


def _blocks_of(job: Job, attempts: Sequence[Job]) -> list[Block]:
    """Return the ends of a completed job's logs; none if they cannot be read."""
    blocks = []
    try:
        for stream, path in log_paths(job):
            if (block := read_end(job, attempts, stream, path)) is not None:
                blocks.append(block)
    except Exception:  # a log that breaks the reader must not stop the others
        log.exception("the log of %s cannot be read", job)
        return []
    return blocks


def harvests_without_templates() -> QuerySet[LogHarvest]:
    """Return the harvests with kept logs whose jobs have no templates yet."""
    return LogHarvest.objects.filter(job__templates=None, excerpts__isnull=False).distinct()


def store_kept(*, before: int | None, at: datetime) -> tuple[int, int | None]:
    """Store the templates of the newest kept logs that have none, in a batch.

    `before` is the key of the harvest at which the last batch ended. Return the number of jobs, and
    the key at which the next batch starts; None if this was the last.
    """
    harvests = harvests_without_templates().select_related("job").order_by("-pk")
    if before is not None:
        harvests = harvests.filter(pk__lt=before)
    rows = list(harvests.prefetch_related("excerpts")[:BATCH])
    logs = []
    for harvest in rows:
        blocks = [block_of(excerpt) for excerpt in harvest.excerpts.all()]
        logs.append(LogTemplates(harvest.job, template_lines(blocks)))
    store_templates(logs, at=at)
    return len(rows), rows[-1].pk if rows else None
