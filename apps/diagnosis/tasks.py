"""Celery tasks: analyse logs, survey large logs, requeue harvests, recount totals by cause."""

import time

from celery import shared_task
from django.utils import timezone

from apps.diagnosis.domain.causes.common import causes
from apps.diagnosis.domain.causes.impact import recount
from apps.diagnosis.domain.causes.totals import recount_dirty_hours
from apps.diagnosis.domain.groups.sweep import sweep_groups
from apps.diagnosis.domain.known_errors import changes
from apps.diagnosis.domain.reading import (
    excerpt_retention,
    line_templates,
    running_logs,
    success_samples,
)
from apps.diagnosis.domain.verdicts import harvest as harvest_module
from apps.diagnosis.domain.verdicts import reclassification
from apps.diagnosis.models import LogHarvest

#: A worker takes its next message after at most this time, since a user may be waiting for it.
TURN_SECONDS = 2
#: How long a task reads logs of completed jobs: nobody waits for them.
COMPLETED_SECONDS = 5


@shared_task(name="diagnosis.harvest_logs")
def harvest_logs() -> None:
    """Harvest batches of logs until the queue is empty or the time is over.

    All messages of this task are equivalent.
    """
    ends = time.monotonic() + TURN_SECONDS
    while harvest_module.harvest_batch(at=timezone.now()):
        if time.monotonic() > ends:
            harvest_module.wake_workers()
            return


@shared_task(name="diagnosis.harvest_log", acks_late=True)
def harvest_log(*, harvest_id: int) -> None:
    harvest = (
        LogHarvest.objects.select_related("job__cluster", "job__experiment")
        .filter(pk=harvest_id)
        .first()
    )
    if harvest is not None:
        harvest_module.harvest_log(harvest=harvest, at=timezone.now())


@shared_task(name="diagnosis.survey_log", acks_late=True)
def survey_log(*, harvest_id: int) -> None:
    harvest = (
        LogHarvest.objects.select_related("job__cluster", "job__experiment")
        .filter(pk=harvest_id)
        .first()
    )
    if harvest is not None:
        harvest_module.survey_log(harvest=harvest, at=timezone.now())


@shared_task(name="diagnosis.find_running_log")
def find_running_log(*, archived_id: int, job_id: str) -> None:
    running_logs.find_running_log(archived_id=archived_id, job_id=job_id, at=timezone.now())


@shared_task(name="diagnosis.requeue_overdue_harvests")
def requeue_overdue_harvests() -> None:
    harvest_module.requeue_overdue(at=timezone.now())


@shared_task(name="diagnosis.delete_expired_excerpts")
def delete_expired_excerpts() -> None:
    excerpt_retention.delete_expired(at=timezone.now())


@shared_task(name="diagnosis.disable_expired_known_errors")
def disable_expired_known_errors() -> None:
    changes.disable_expired(at=timezone.now())


@shared_task(name="diagnosis.sample_successes")
def sample_successes() -> None:
    success_samples.sample_successes(at=timezone.now())


@shared_task(name="diagnosis.read_completed_logs")
def read_completed_logs() -> None:
    line_templates.read_completed_for(seconds=COMPLETED_SECONDS, at=timezone.now())


@shared_task(name="diagnosis.reclassify_batch", acks_late=True)
def reclassify_batch(*, run_id: int) -> None:
    reclassification.reclassify_batch(run_id=run_id, at=timezone.now())


@shared_task(name="diagnosis.continue_lost_reclassifications")
def continue_lost_reclassifications() -> None:
    reclassification.continue_lost_runs(at=timezone.now())


@shared_task(name="diagnosis.recount_causes")
def recount_causes() -> None:
    sweep_groups(recount_dirty_hours(), at=timezone.now())


@shared_task(name="diagnosis.analyse_causes")
def analyse_causes(*, analysis_id: int) -> None:
    causes.analyse(analysis_id=analysis_id, at=timezone.now())


@shared_task(name="diagnosis.requeue_lost_analyses")
def requeue_lost_analyses() -> None:
    causes.requeue_lost(at=timezone.now())


@shared_task(name="diagnosis.recount_impacts")
def recount_impacts() -> None:
    recount.recount_marked(at=timezone.now())


@shared_task(name="diagnosis.verify_impacts")
def verify_impacts() -> None:
    recount.verify_impacts(at=timezone.now())
