"""Harvest the logs of failed jobs in batches: claim jobs, read their logs, store the results.

A batch costs a constant number of queries, and reads no log within a transaction. Each job has a
row as its claim: harvests of a killed worker are requeued, and an existing verdict is replaced
completely or not at all.
"""

import logging
import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import InterfaceError, OperationalError, transaction
from django.db.models import Q, QuerySet

from apps.accounts.models import Principal
from apps.clusters.schedulers.base import JobState
from apps.core.domain.background import enqueue
from apps.core.domain.events import publish
from apps.core.domain.work import Queue
from apps.core.domain.workflow import move
from apps.core.errors import NotAllowed
from apps.diagnosis.domain.known_errors.omissions import count_omissions
from apps.diagnosis.domain.verdicts.analyses import (
    BACK_OFF,
    AnalysisInput,
    HarvestOutcome,
    analyse,
    analyse_whole,
    decide_without_log,
)
from apps.diagnosis.domain.verdicts.judged_jobs import store_verdicts, withdraw_verdicts
from apps.diagnosis.enums import TRANSITIONS, HarvestState
from apps.diagnosis.models import Evidence, LogExcerpt, LogHarvest
from apps.diagnosis.permissions import may_correct_verdict
from apps.jobs.domain.phases.logs import store_log_phases
from apps.jobs.models import Job
from apps.search.domain.indexing.new_logs import queue_words
from apps.search.domain.templates import LogTemplates, store_templates

log = logging.getLogger(__name__)

QUEUE = "harvest"
#: Maximum number of workers woken at a time: each continues until the queue is empty.
MOST_WAITING = 4
#: A harvest that runs longer than this has lost its worker and is requeued.
RUN_TIMEOUT = timedelta(minutes=12)
#: A harvest that is due for longer than this has lost its message to a worker and is requeued.
GRACE = timedelta(seconds=60)
HARVESTS = Queue(
    name="harvest",
    title="Logs of failed jobs",
    model=LogHarvest,
    unfinished_rows=Q(state__in=[HarvestState.QUEUED, HarvestState.RUNNING]),
    back_off=BACK_OFF,
    lease=RUN_TIMEOUT,
)
#: Number of jobs claimed at once, and the limits of time and size at which outcomes are stored.
BATCH = 100
BATCH_SECONDS = 10.0
BATCH_BYTES = 8 * 1024 * 1024


@transaction.atomic
def queue_harvests(*, job_pks: Iterable[int], at: datetime) -> int:
    """Queue a harvest for each of these jobs that did not complete; return their number.

    Idempotent.
    """
    jobs = Job.objects.filter(pk__in=job_pks).exclude(state=JobState.COMPLETED)
    new = [LogHarvest(job_id=pk, due_at=at) for pk in jobs.values_list("pk", flat=True)]
    LogHarvest.objects.bulk_create(new, ignore_conflicts=True)
    # A finished harvest is queued again: accounting corrected the job, or its script arrived
    # meanwhile. A worker that is running it notices, and stores nothing.
    queued = LogHarvest.objects.filter(job__in=jobs).update(state=HarvestState.QUEUED, **_fresh(at))
    if queued:
        wake_workers()
    return queued


def _fresh(at: datetime) -> dict[str, Any]:
    """Return the fields of a newly requested harvest, except its state."""
    return {"attempts": 0, "interrupted": False, "due_at": at}


def wake_workers(*, countdown: float = 0) -> None:
    """Let a worker check for due harvests after `countdown` seconds."""
    enqueue("diagnosis.harvest_logs", queue=QUEUE, most_waiting=MOST_WAITING, countdown=countdown)


@transaction.atomic
def reanalyse_log(*, job: Job, by: Principal, at: datetime) -> LogHarvest:
    """Queue a job's logs for another analysis, ahead of all waiting harvests.

    Raises `NotAllowed`, `InvalidTransition`, `StaleState`.
    """
    if not may_correct_verdict(by, job.experiment_id):
        raise NotAllowed("Only the OPG and liaisons of the experiment can re-analyse a log.")
    harvest, created = LogHarvest.objects.get_or_create(job=job, defaults={"due_at": at})
    if not created:
        move(harvest, to=HarvestState.QUEUED, transitions=TRANSITIONS, **_fresh(at))
    publish(kind="harvest.requested", target=job, by=by, at=at)
    enqueue("diagnosis.harvest_log", harvest_id=harvest.pk)
    return harvest


def harvest_log(*, harvest: LogHarvest, at: datetime) -> HarvestState | None:
    """Read the logs of one job and store the results; return None if another worker claimed it.

    See `harvest_batch`.
    """
    claimed = _claim(LogHarvest.objects.filter(pk=harvest.pk, state=HarvestState.QUEUED), at)
    return _harvest(claimed, at).get(harvest.pk)


def harvest_batch(*, at: datetime) -> int:
    """Harvest the logs of the jobs that have waited longest; return the number of claimed jobs.

    A missing log is retried a little later. A job whose worker was killed is harvested alone, so
    that a log that kills workers delays no other job. Any number of workers may run this at once.
    """
    waiting = HARVESTS.due(at).filter(state=HarvestState.QUEUED)
    claimed = _claim(waiting.filter(interrupted=True)[:1], at) or _claim(
        waiting.filter(interrupted=False)[:BATCH], at
    )
    _harvest(claimed, at)
    return len(claimed)


def _claim(waiting: QuerySet[LogHarvest], at: datetime) -> list[LogHarvest]:
    """Claim queued harvests that no other worker is claiming; return them with their jobs."""
    rows = waiting.select_related("job__cluster", "job__experiment")
    return HARVESTS.claim(rows, at=at, state=HarvestState.RUNNING)


def _harvest(claimed: Sequence[LogHarvest], at: datetime) -> dict[int, HarvestState]:
    """Analyse claimed harvests until a limit is reached and store the outcomes.

    Return the new state of each harvest.
    """
    if not claimed:
        return {}
    inputs = AnalysisInput.of([harvest.job for harvest in claimed])
    outcomes: list[HarvestOutcome] = []
    ends, held = time.monotonic() + BATCH_SECONDS, 0
    for harvest in claimed:
        if outcomes and (held > BATCH_BYTES or time.monotonic() > ends):
            break
        outcomes.append(analyse(harvest, inputs, at))
        held += outcomes[-1].size_bytes
    not_begun = claimed[len(outcomes) :]
    HARVESTS.release(not_begun, due_at=at, state=HarvestState.QUEUED)
    return _store_separately(outcomes, at)


def _store_separately(outcomes: Sequence[HarvestOutcome], at: datetime) -> dict[int, HarvestState]:
    """Store outcomes together; if that fails, one by one, so that only a bad outcome's job fails.

    Return the new state of each harvest.
    """
    try:
        return _store(outcomes, at)
    except (OperationalError, InterfaceError):
        # The database failed, not an outcome: the overdue harvests are requeued.
        raise
    except Exception as error:
        if len(outcomes) > 1:
            states: dict[int, HarvestState] = {}
            for outcome in outcomes:
                states.update(_store_separately([outcome], at))
            return states
        log.exception("harvest of %s cannot be stored", outcomes[0].harvest.job)
        return _store([decide_without_log(outcomes[0].harvest, error)], at)


@transaction.atomic
def _store(outcomes: Sequence[HarvestOutcome], at: datetime) -> dict[int, HarvestState]:
    """Store the outcomes of harvests that are still claimed, in one transaction.

    Return their states.
    """
    claimed = [outcome.harvest for outcome in outcomes]
    held = {harvest.pk for harvest in HARVESTS.hold(claimed)}
    outcomes = [outcome for outcome in outcomes if outcome.harvest.pk in held]
    if not outcomes:
        return {}

    for outcome in outcomes:
        harvest = outcome.harvest
        harvest.state = outcome.state
        harvest.last_error = outcome.last_error
        if outcome.wait_seconds:
            harvest.due_at = at + timedelta(seconds=outcome.wait_seconds)
        else:
            harvest.interrupted = False
            if outcome.is_read:
                harvest.harvested_at = at
    LogHarvest.objects.bulk_create(
        [outcome.harvest for outcome in outcomes],
        update_conflicts=True,  # all rows exist and are locked: this updates many rows at once
        unique_fields=["id"],
        update_fields=["state", "last_error", "due_at", "harvested_at", "interrupted"],
    )
    _write(outcomes, at)

    for outcome in outcomes:
        if outcome.needs_survey:
            enqueue("diagnosis.survey_log", harvest_id=outcome.harvest.pk)
    for seconds in {outcome.wait_seconds for outcome in outcomes} - {0.0}:
        wake_workers(countdown=seconds)
    return {outcome.harvest.pk: outcome.state for outcome in outcomes}


def _write(outcomes: Sequence[HarvestOutcome], at: datetime) -> None:
    """Replace excerpts, their words, evidence, phases and templates, and store verdicts."""
    read = []
    excerpts: list[LogExcerpt] = []
    evidence: list[Evidence] = []
    phases = {}
    templates = []
    omissions = {}
    for outcome in outcomes:
        content = outcome.content
        if content is None:
            continue
        read.append(outcome.harvest.pk)
        excerpts += content.excerpts
        evidence += content.evidence
        omissions[outcome.harvest.job] = content.omitted
        if content.phases is not None:
            phases[outcome.harvest.job] = content.phases
        if content.lines is not None:
            templates.append(LogTemplates(outcome.harvest.job, content.lines))

    stored = [excerpt.pk for excerpt in excerpts if excerpt.pk]
    LogExcerpt.objects.filter(harvest__in=read).exclude(pk__in=stored).delete()
    Evidence.objects.filter(harvest__in=read).delete()
    LogExcerpt.objects.bulk_create([excerpt for excerpt in excerpts if excerpt.pk is None])
    Evidence.objects.bulk_create(evidence, ignore_conflicts=True)
    store_log_phases(phases)
    count_omissions(omissions, at=at)
    if judged_jobs := [outcome.judged_job for outcome in outcomes if outcome.judged_job]:
        store_verdicts(judged_jobs, at=at)
    without_verdict = [outcome.harvest.job for outcome in outcomes if outcome.needs_no_verdict]
    if without_verdict:
        withdraw_verdicts(without_verdict, at=at)
    store_templates(templates, at=at)
    queue_words([outcome.harvest.job_id for outcome in outcomes if outcome.content], at=at)


def survey_log(*, harvest: LogHarvest, at: datetime) -> bool:
    """Survey the large logs of a finished harvest completely and decide the verdict again.

    Return whether that was done.
    """
    outcome = analyse_whole(harvest, at) if harvest.state == HarvestState.DONE else None
    if outcome is None:
        return False
    with transaction.atomic():
        unchanged = LogHarvest.objects.filter(
            pk=harvest.pk, state=harvest.state, harvested_at=harvest.harvested_at
        )
        if unchanged.select_for_update().first() is None:
            return False
        _write([outcome], at)
    return True


def requeue_overdue(*, at: datetime, limit: int = 500) -> int:
    """Requeue overdue harvests, of killed workers and lost messages; return their number."""
    lost = LogHarvest.objects.filter(state=HarvestState.RUNNING, due_at__lte=at)
    lost.update(state=HarvestState.QUEUED, interrupted=True, due_at=at - GRACE)
    with transaction.atomic():
        late = HARVESTS.take_overdue(at=at, grace=GRACE, limit=limit)
        if late:
            wake_workers()
    return len(late)
