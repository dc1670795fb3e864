"""Re-classify history: evaluate the stored excerpts of past failures with the current catalogue."""

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Max, Q, QuerySet

from apps.accounts.models import Principal
from apps.core.domain.background import enqueue
from apps.core.domain.events import publish
from apps.core.domain.locks import lock_for_this_transaction
from apps.core.domain.work import BackOff, Queue
from apps.core.domain.workflow import move
from apps.core.errors import DomainError, NotAllowed
from apps.diagnosis.domain.known_errors.current import current_catalogue
from apps.diagnosis.domain.reading.job_facts import facts_for_logs, facts_of, outages_during_job
from apps.diagnosis.domain.reading.log_windows import block_of
from apps.diagnosis.domain.reading.success_samples import with_novel_lines
from apps.diagnosis.domain.verdicts.analyses import evidence_of
from apps.diagnosis.domain.verdicts.judged_jobs import (
    JudgedJob,
    may_be_withdrawn,
    needs_verdict,
    store_verdicts,
    withdraw_verdicts,
)
from apps.diagnosis.engine.base import Block, Pattern
from apps.diagnosis.engine.diagnose import Diagnosis, diagnose
from apps.diagnosis.engine.evidence.catalogue import KnownErrorCatalogue
from apps.diagnosis.engine.registry import classifiers
from apps.diagnosis.enums import (
    RECLASSIFICATION_MOVES,
    RECLASSIFYING,
    ReclassificationState,
    Stream,
)
from apps.diagnosis.models import Evidence, KnownError, LogHarvest, Reclassification, Verdict
from apps.diagnosis.permissions import may_edit_catalogue

BATCH = 100
#: A run without a batch for this long has lost its worker or its message, and is continued.
LOST = timedelta(seconds=90)
TASK = "diagnosis.reclassify_batch"
RUNS = Queue(
    name="reclassification",
    title="Re-classification of failures",
    model=Reclassification,
    unfinished_rows=Q(state__in=RECLASSIFYING),
    back_off=BackOff((10,)),
)


class AlreadyRunning(DomainError):
    """A re-classification is running already; the message names it."""


@transaction.atomic
def start_preview(*, since: datetime, by: Principal, at: datetime) -> Reclassification:
    """Start a preview for the verdicts on jobs that ended since a time.

    Raises `NotAllowed`, `AlreadyRunning`.
    """
    _check_may_reclassify(by)
    _check_none_runs()
    verdicts = Verdict.objects.filter(ended_at__gte=since)
    run = Reclassification.objects.create(
        since=since,
        by=str(by)[:150],
        started_at=at,
        worked_at=at,
        due_at=at,
        last_verdict=verdicts.aggregate(last=Max("pk"))["last"] or 0,
        total=verdicts.count(),
    )
    publish(kind="reclassification.started", target=run, by=by, at=at)
    enqueue(TASK, run_id=run.pk)
    return run


@transaction.atomic
def apply_run(*, run: Reclassification, by: Principal, at: datetime) -> None:
    """Repeat a previewed run on the same verdicts and store the changes.

    Raises `NotAllowed`, `AlreadyRunning`, `InvalidTransition`, `StaleState`.
    """
    _check_may_reclassify(by)
    _check_none_runs()
    start: dict[str, Any] = {"position": 0, "judged": 0, "changed": 0, "moves": {}}
    start |= {"worked_at": at, "due_at": at}
    move(run, to=ReclassificationState.APPLYING, transitions=RECLASSIFICATION_MOVES, **start)
    publish(kind="reclassification.applied", target=run, by=by, at=at)
    enqueue(TASK, run_id=run.pk)


@transaction.atomic
def cancel_run(*, run: Reclassification, by: Principal, at: datetime) -> None:
    """Stop a run; verdicts that it has changed keep the change.

    Raises `NotAllowed`, `InvalidTransition`, `StaleState`.
    """
    _check_may_reclassify(by)
    move(run, to=ReclassificationState.CANCELLED, transitions=RECLASSIFICATION_MOVES, worked_at=at)
    publish(kind="reclassification.cancelled", target=run, by=by, at=at)


def _check_may_reclassify(by: Principal) -> None:
    if not may_edit_catalogue(by):
        raise NotAllowed("Only approvers and admins of the OPG can re-classify history.")


def _check_none_runs() -> None:
    """Raise `AlreadyRunning` if a run is active; no other can start until this transaction ends."""
    lock_for_this_transaction("reclassification")
    run = Reclassification.objects.filter(state__in=RECLASSIFYING).first()
    if run is not None:
        state = run.get_state_display().lower()
        raise AlreadyRunning(
            f"Run {run.pk} of {run.by} is {state}. Wait until it has finished, or cancel it."
        )


def reclassify_batch(*, run_id: int, at: datetime) -> bool:
    """Evaluate the next verdicts of a run; return whether more are left.

    Changes and position are committed together, so that a batch of a killed worker is repeated as a
    whole.
    """

    def judge_batch(run: Reclassification) -> None:
        _judge_batch(run, at)

    run = RUNS.process(RUNS.unfinished().filter(pk=run_id), judge_batch, at=at)
    return run is not None and run.state in RECLASSIFYING


def _judge_batch(run: Reclassification, at: datetime) -> None:
    verdicts = Verdict.objects.filter(
        pk__gt=run.position, pk__lte=run.last_verdict, ended_at__gte=run.since
    )
    apply = run.state == ReclassificationState.APPLYING
    catalogue = current_catalogue()
    if apply:
        _lock_harvests(verdicts)

    verdicts = verdicts.select_related("job__cluster", "job__experiment", "job__harvest").order_by(
        "pk"
    )
    batch = list(verdicts[:BATCH])
    moves = Counter(run.moves)
    for verdict in batch:
        if change := _reclassify(verdict, apply, catalogue, at):
            moves[change] += 1
            run.changed += 1

    run.moves = dict(moves)
    run.catalogue_version = catalogue.version
    run.judged += len(batch)
    run.position = batch[-1].pk if batch else run.position
    run.worked_at = at
    run.due_at = at
    run.attempts = 0
    run.last_error = ""
    if len(batch) == BATCH:
        enqueue(TASK, run_id=run.pk)
    else:
        run.state = ReclassificationState.DONE if apply else ReclassificationState.PREVIEWED
    run.save()


def _lock_harvests(verdicts: QuerySet[Verdict]) -> None:
    """Lock the harvests of the next verdicts, so that none stores a newer analysis meanwhile."""
    jobs = [verdict.job_id for verdict in verdicts.order_by("pk").only("job")[:BATCH]]
    list(
        LogHarvest.objects.filter(job__in=jobs)
        .select_for_update()
        .order_by("pk")
        .values_list("pk", flat=True)
    )


@transaction.atomic
def continue_lost_runs(*, at: datetime) -> int:
    """Enqueue the next batch of runs that lost their worker or message; return their number."""
    lost = RUNS.take_overdue(at=at, grace=LOST - RUNS.lease)
    for run in lost:
        enqueue(TASK, run_id=run.pk)
    return len(lost)


def _reclassify(verdict: Verdict, apply: bool, catalogue: KnownErrorCatalogue, at: datetime) -> str:
    """Evaluate the excerpts of one job again; return the change, "" if there is none.

    A user's override stays.
    """
    harvest = LogHarvest.objects.filter(job=verdict.job_id).prefetch_related("excerpts").first()
    if harvest:
        blocks = [block_of(excerpt) for excerpt in harvest.excerpts.all()]
    else:
        blocks = []
    if harvest is None or not blocks or _holds_before(verdict, harvest, blocks, catalogue):
        return ""
    job = verdict.job
    used = {**classifiers(), KnownErrorCatalogue.name: catalogue}
    diagnosis = diagnose(
        facts_for_logs(job), blocks, classifiers=used, outages=outages_during_job(job)
    )
    decided = diagnosis.verdict
    cause = decided.cause.pattern.id[:64] if decided.cause else ""
    old = _change_text(verdict.machine_verdict, verdict.cause)
    if needs_verdict(job, decided):
        new = _change_text(decided.verdict, cause)
    elif may_be_withdrawn(verdict):
        new = "no verdict"
    else:
        new = old
    if new == old:
        return ""
    if apply:
        _store(harvest, with_novel_lines(diagnosis, job, blocks), blocks, at)
    return f"{old} → {new}"


def _change_text(verdict: str, cause: str) -> str:
    return f"{verdict}, {cause}" if cause else verdict


def _holds_before(
    verdict: Verdict, harvest: LogHarvest, blocks: list[Block], catalogue: KnownErrorCatalogue
) -> bool:
    """Return whether the cause precedes the stored excerpts and is still valid.

    The known error must still match its line. A cause read by the grammar stays valid, since it
    cannot be read again without the lines around it.
    """
    starts = {block.stream: block.offset for block in blocks}
    facts = facts_of(verdict.job)
    if not verdict.cause:
        return False
    for evidence in harvest.evidence.filter(pattern=verdict.cause):
        if evidence.offset >= starts.get(Stream(evidence.stream), 0):
            continue
        if not KnownError.objects.filter(pk=evidence.pattern).exists():
            return True
        line = evidence.text.encode()
        hits = catalogue.classify(facts, Block(line, 0, len(line), 1)).hits
        if any(_is_same(hit.pattern, evidence) for hit in hits):
            return True
    return False


def _is_same(pattern: Pattern, evidence: Evidence) -> bool:
    if pattern.id != evidence.pattern or pattern.passive:
        return False
    stored = (evidence.role, evidence.category, evidence.service)
    return (pattern.role, pattern.category, pattern.service) == stored


def _store(harvest: LogHarvest, diagnosis: Diagnosis, blocks: list[Block], at: datetime) -> None:
    """Replace the evidence within the excerpts, and store or withdraw the verdict."""
    for block in blocks:
        harvest.evidence.filter(stream=block.stream, offset__gte=block.offset).delete()
    Evidence.objects.bulk_create(evidence_of(harvest, diagnosis), ignore_conflicts=True)
    if needs_verdict(harvest.job, diagnosis.verdict):
        store_verdicts([JudgedJob.of(harvest.job, diagnosis.verdict, blocks)], at=at)
    else:
        withdraw_verdicts([harvest.job], at=at)
