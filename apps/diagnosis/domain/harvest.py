"""Harvest the logs of failed jobs: read them, and store excerpts, evidence and verdict."""

import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import zstandard
from django.db import DatabaseError, transaction

from apps.accounts.models import Principal
from apps.clusters.schedulers.base import JobState
from apps.core.domain.background import enqueue
from apps.core.domain.events import publish
from apps.core.domain.workflow import move
from apps.core.errors import NotAllowed, StaleState
from apps.diagnosis import wording
from apps.diagnosis.domain.attempts import attempts_of, note_later_attempt, open_own_log
from apps.diagnosis.domain.causes import mark_dirty
from apps.diagnosis.domain.facts import facts_of, outages_during_job
from apps.diagnosis.domain.fingerprints import line_of, message_of, title_of
from apps.diagnosis.domain.groups import group_for
from apps.diagnosis.domain.known_errors.current import current, current_classifiers
from apps.diagnosis.domain.log_access import locate_logs
from apps.diagnosis.domain.log_windows import block_of
from apps.diagnosis.engine.base import Block, Reason
from apps.diagnosis.engine.diagnose import Diagnosis, diagnose, read_log
from apps.diagnosis.engine.survey import HEAD_BYTES, Survey, survey
from apps.diagnosis.engine.tail import LogError, LogMissing, LogOverwritten, LogRefused
from apps.diagnosis.enums import TRANSITIONS, Category, HarvestState, ReasonKind, Stream
from apps.diagnosis.models import Evidence, LogExcerpt, LogHarvest, Verdict
from apps.diagnosis.permissions import may_correct_verdict
from apps.jobs.domain.records import clean_text, hour_of
from apps.jobs.models import Job

log = logging.getLogger(__name__)

#: Waits before a missing log is looked for again: file systems lag behind the scheduler.
BACK_OFF_SECONDS = (20, 60)
#: A harvest that runs longer was killed, and is requeued.
RUN_TIMEOUT = timedelta(minutes=12)
#: A harvest that waits longer lost its message to the worker, and is requeued.
GRACE = timedelta(seconds=60)
EXCERPT_BYTES = 64 * 1024
EVIDENCE_LIMIT = 200
ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Result of reading one log: a block of it and what was found before that, or an error."""

    stream: Stream
    path: str
    block: Block | None = None
    before: Survey | None = None
    error: LogError | None = None


@transaction.atomic
def queue_harvests(*, job_ids: Iterable[int], at: datetime) -> int:
    """Queue a harvest for each of these jobs that did not complete; return how many. Idempotent."""
    jobs = Job.objects.filter(pk__in=job_ids).exclude(state=JobState.COMPLETED)
    new = [LogHarvest(job_id=pk, due_at=at) for pk in jobs.values_list("pk", flat=True)]
    LogHarvest.objects.bulk_create(new, ignore_conflicts=True)
    # A finished harvest is queued again: accounting corrected the job, or its script arrived meanwhile. A running one
    # finds itself queued again, and stores nothing.
    harvests = LogHarvest.objects.filter(job__in=jobs)
    harvests.update(state=HarvestState.QUEUED, attempts=0, due_at=at)
    ids = list(harvests.values_list("pk", flat=True))
    for pk in ids:
        enqueue("apps.diagnosis.tasks.harvest_log", harvest_id=pk)
    return len(ids)


@transaction.atomic
def reanalyse_log(*, job: Job, by: Principal, at: datetime) -> LogHarvest:
    """Queue a job's logs for another analysis. Raises `NotAllowed`, `InvalidTransition`, `StaleState`."""
    if not may_correct_verdict(by, job.experiment_id):
        raise NotAllowed("Only the OPG and liaisons of the experiment can re-analyse a log.")
    harvest, created = LogHarvest.objects.get_or_create(job=job, defaults={"due_at": at})
    if not created:
        move(harvest, to=HarvestState.QUEUED, transitions=TRANSITIONS, attempts=0, due_at=at)
    publish(kind="harvest.asked", target=job, by=by, at=at)
    enqueue("apps.diagnosis.tasks.harvest_log", harvest_id=harvest.pk)
    return harvest


def harvest_log(*, harvest: LogHarvest, at: datetime) -> HarvestState | None:
    """Read the logs of one job and store excerpts, evidence and verdict together; None if another worker has it.

    A missing log is retried a little later. The claim is a row: the harvest of a killed worker is found and requeued,
    and an existing verdict is replaced as a whole or not at all.
    """
    if harvest.state != HarvestState.QUEUED:
        return None
    attempt, due_at = harvest.attempts + 1, at + RUN_TIMEOUT
    try:
        move(harvest, to=HarvestState.RUNNING, transitions=TRANSITIONS, attempts=attempt, due_at=due_at)
        if attempt > ATTEMPTS:
            raise RuntimeError(f"log analysis was interrupted {ATTEMPTS} times")
        read = [_read(harvest, stream, path) for stream, path in locate_logs(job=harvest.job, at=at)]
        errors = [one.error for one in read if one.error and not isinstance(one.error, LogRefused | LogOverwritten)]
        if errors and harvest.job.started_at and attempt <= len(BACK_OFF_SECONDS):
            return _reschedule(harvest, errors, at)
        return _store(harvest, read, at)
    except StaleState:
        return None
    except DatabaseError:
        raise
    except Exception as error:  # a log that breaks the reader must not be retried forever
        log.exception("harvest of %s failed", harvest.job)
        with suppress(StaleState):
            return _fail(harvest, error, at)
        return None


def survey_log(*, harvest: LogHarvest, at: datetime) -> bool:
    """Look through all of the large logs of a finished harvest, and decide again; tell whether that was done."""
    if harvest.state != HarvestState.DONE:
        return False
    read = [_read(harvest, stream, path, whole=True) for stream, path in locate_logs(job=harvest.job, at=at)]
    if any(one.error for one in read) or not any(one.before for one in read):
        return False  # what is stored was read when all logs were there
    with transaction.atomic():
        unchanged = LogHarvest.objects.filter(pk=harvest.pk, state=harvest.state, harvested_at=harvest.harvested_at)
        if unchanged.select_for_update().first() is None:
            return False
        _conclude(harvest, read, at)
    return True


def _read(harvest: LogHarvest, stream: Stream, path: str, *, whole: bool = False) -> ReadResult:
    """Read a log, or its stored excerpt if a later attempt of the job has written to the file since.

    Of a large log the end is read, and the beginning or, with `whole`, all of it is looked through.
    """
    before = None
    try:
        with open_own_log(harvest.job, stream, path) as (descriptor, part):
            block = replace(read_log(descriptor, part), stream=stream)
            if not block.is_whole:
                limit = None if whole else HEAD_BYTES
                before = survey(descriptor, block, facts_of(harvest.job), current(), limit_bytes=limit)
                block = before.numbered(block)
    except LogError as error:
        excerpt = harvest.excerpts.filter(stream=stream, path=path).first()
        if excerpt is None or not isinstance(error, LogOverwritten):
            return ReadResult(stream, path, error=error)
        block = replace(block_of(excerpt), stream=stream)
    return ReadResult(stream, path, block=block, before=before)


def _lock_claim(harvest: LogHarvest) -> None:
    """Lock the row that this worker has claimed. Raises `StaleState` if it was queued or claimed again meanwhile."""
    claimed = LogHarvest.objects.filter(pk=harvest.pk, state=HarvestState.RUNNING, due_at=harvest.due_at)
    if claimed.select_for_update().first() is None:
        raise StaleState(f"harvest of {harvest.job} was queued again")


@transaction.atomic
def _fail(harvest: LogHarvest, error: Exception, at: datetime) -> HarvestState:
    """Mark a harvest as failed, with a verdict from the scheduler's facts alone."""
    _lock_claim(harvest)
    message = clean_text(f"{type(error).__name__}: {error}", 2000)
    move(harvest, to=HarvestState.FAILED, transitions=TRANSITIONS, last_error=message, harvested_at=at)
    reasons = [Reason(ReasonKind.LOG, wording.ANALYSIS_FAILED)]
    store_verdict(harvest.job, diagnose(facts_of(harvest.job), [], classifiers={}, reasons=reasons), [], at)
    return HarvestState.FAILED


@transaction.atomic
def _reschedule(harvest: LogHarvest, errors: list[LogError], at: datetime) -> HarvestState:
    _lock_claim(harvest)
    wait = BACK_OFF_SECONDS[harvest.attempts - 1]
    move(
        harvest,
        to=HarvestState.QUEUED,
        transitions=TRANSITIONS,
        due_at=at + timedelta(seconds=wait),
        last_error=_joined(errors),
    )
    enqueue("apps.diagnosis.tasks.harvest_log", harvest_id=harvest.pk, countdown=wait)
    return HarvestState.QUEUED


def _joined(errors: list[LogError]) -> str:
    return clean_text("; ".join(str(error) for error in errors), 2000)


@transaction.atomic
def _store(harvest: LogHarvest, read: list[ReadResult], at: datetime) -> HarvestState:
    """Store excerpts, evidence and verdict, and finish the harvest, in one transaction."""
    _lock_claim(harvest)
    state = _state_of(read)
    errors = [one.error for one in read if one.error]
    move(harvest, to=state, transitions=TRANSITIONS, last_error=_joined(errors), harvested_at=at)
    _conclude(harvest, read, at)
    if any(one.block and one.before and not one.before.reaches(one.block) for one in read):
        enqueue("apps.diagnosis.tasks.survey_log", harvest_id=harvest.pk)
    return state


def _conclude(harvest: LogHarvest, read: list[ReadResult], at: datetime) -> None:
    """Store excerpts, evidence and verdict of what was read."""
    job = harvest.job
    errors = [one.error for one in read if one.error]
    blocks = [one.block for one in read if one.block]
    reasons = [Reason(ReasonKind.LOG, clean_text(str(error))) for error in errors]
    if not read:
        why = wording.LOG_PATH_UNKNOWN if job.started_at else wording.NEVER_STARTED
        reasons.append(Reason(ReasonKind.LOG, why))
    outages = outages_during_job(job)
    found = diagnose(
        facts_of(job),
        blocks,
        classifiers=current_classifiers(),
        outages=outages,
        reasons=reasons,
        surveys={one.stream: one.before for one in read if one.before},
    )
    harvest.excerpts.all().delete()
    LogExcerpt.objects.bulk_create([_excerpt(harvest, one.path, one.block) for one in read if one.block])
    harvest.evidence.all().delete()
    Evidence.objects.bulk_create(evidence_of(harvest, found), ignore_conflicts=True)
    # A completed job without a known error gets no verdict.
    if job.state != JobState.COMPLETED or found.verdict.category is not Category.UNKNOWN:
        store_verdict(job, found, blocks, at)


def _state_of(read: list[ReadResult]) -> HarvestState:
    if any(one.block for one in read):
        return HarvestState.DONE
    kinds = [type(one.error) for one in read]
    if LogRefused in kinds:
        return HarvestState.PATH_NOT_ALLOWED
    return HarvestState.LOG_NOT_FOUND if all(issubclass(kind, LogMissing) for kind in kinds) else HarvestState.FAILED


def _excerpt(harvest: LogHarvest, path: str, block: Block) -> LogExcerpt:
    """Return the last 64 kB of a block, starting at a line where there is one."""
    cut = max(0, len(block.data) - EXCERPT_BYTES)
    if cut:
        line_start = block.data.find(b"\n", cut - 1) + 1
        cut = line_start if 0 < line_start < len(block.data) else cut
    before = block.data.count(b"\n", 0, cut)
    return LogExcerpt(
        harvest=harvest,
        stream=block.stream,
        path=path,
        size_bytes=block.file_bytes,
        compressed=zstandard.ZstdCompressor().compress(block.data[cut:]),
        first_offset=block.offset + cut,
        first_line_number=None if block.first_line is None else block.first_line + before,
    )


def evidence_of(harvest: LogHarvest, found: Diagnosis) -> list[Evidence]:
    """Return the known errors found as unsaved rows."""
    return [
        Evidence(
            harvest=harvest,
            stream=hit.stream,
            pattern=hit.pattern.id[:64],
            role=hit.pattern.role,
            category=hit.pattern.category,
            service=hit.pattern.service[:64],
            line=hit.line,
            offset=hit.offset,
            text=hit.text,
        )
        for hit in found.hits[:EVIDENCE_LIMIT]
    ]


def store_verdict(job: Job, found: Diagnosis, blocks: list[Block], at: datetime) -> None:
    """Store the verdict; an override by a user stays effective, everything else is updated."""
    decided = found.verdict
    old = Verdict.objects.select_for_update().filter(job=job).first()
    line = clean_text(line_of(decided, blocks))
    new = Verdict(
        job=job,
        verdict=old.verdict if old and old.is_overridden else decided.verdict,
        ended_at=job.ended_at,
        cause=decided.cause.pattern.id[:64] if decided.cause else "",
        service=decided.service[:64],
        message=message_of(decided, line),
        frame=clean_text(decided.cause.fields.get("frame", "") if decided.cause else "", 200),
    )
    if old is not None:
        new.retried_as, new.retry_state = old.retried_as, old.retry_state
    note_later_attempt(new, attempts_of(job))
    new.group = group_for(new, title=title_of(decided, new.message), line=line, at=at)
    copied = ("verdict", "advice", "later_attempt", "later_state", "cause", "service", "message", "frame", "group")
    verdict, _ = Verdict.objects.update_or_create(
        job=job,
        defaults={
            **{name: getattr(new, name) for name in copied},
            "experiment_id": job.experiment_id,
            "ended_at": job.ended_at,
            "machine_verdict": decided.verdict,
            "category": decided.category,
            "confidence": decided.confidence,
            "summary": decided.summary,
            "reasons": [
                {"kind": r.kind, "text": clean_text(r.text), "target": clean_text(r.target)} for r in decided.reasons
            ],
            "catalogue_version": current().version,
            "decided_at": at,
        },
    )
    mark_dirty({hour_of(verdict.ended_at), *([hour_of(old.ended_at)] if old else [])})
    if old is None or (old.verdict, old.cause) != (verdict.verdict, verdict.cause):
        publish(
            kind="verdict.decided",
            target=job,
            by="diagnosis",
            at=at,
            old=old.verdict if old else "",
            new=verdict.verdict,
            reason=decided.summary,
        )


def requeue_overdue(*, at: datetime, limit: int = 500) -> int:
    """Requeue overdue harvests, of killed workers and lost messages; return how many."""
    dead = LogHarvest.objects.filter(state=HarvestState.RUNNING, due_at__lte=at)
    dead.update(state=HarvestState.QUEUED, due_at=at - GRACE)
    late = LogHarvest.objects.filter(state=HarvestState.QUEUED, due_at__lte=at - GRACE).order_by("due_at")
    with transaction.atomic():
        ids = list(late.values_list("pk", flat=True)[:limit])
        LogHarvest.objects.filter(pk__in=ids, state=HarvestState.QUEUED).update(due_at=at)
        for pk in ids:
            enqueue("apps.diagnosis.tasks.harvest_log", harvest_id=pk)
    return len(ids)
