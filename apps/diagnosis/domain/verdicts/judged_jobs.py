"""Store the verdicts on analysed jobs in their failure groups, with events, in few statements."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from django.db import transaction
from django.db.models import F, QuerySet

from apps.clusters.schedulers.base import JobState
from apps.core.domain.events import new_event, publish_all
from apps.core.models import Event
from apps.diagnosis import wording
from apps.diagnosis.domain.causes.totals import mark_dirty
from apps.diagnosis.domain.groups.fingerprints import line_of, message_of, symptom_of, title_of
from apps.diagnosis.domain.groups.triage import UngroupedVerdict, groups_for
from apps.diagnosis.domain.known_errors.current import current_catalogue
from apps.diagnosis.domain.reading.attempts import attempts_by_job, note_later_attempt
from apps.diagnosis.engine.base import Block, EngineVerdict
from apps.diagnosis.enums import ADVICE_OF, Category, VerdictKind
from apps.diagnosis.models import Verdict
from apps.jobs.domain.records.conversion import clean_text, hour_of
from apps.jobs.models import Job

#: The fields that an analysis stores; the others of a verdict come from users or retries.
_STORED = (
    "experiment",
    "ended_at",
    "verdict",
    "advice",
    "later_attempt",
    "later_state",
    "machine_verdict",
    "category",
    "confidence",
    "cause",
    "service",
    "message",
    "frame",
    "symptom",
    "group",
    "summary",
    "reasons",
    "catalogue_version",
    "decided_at",
)


@dataclass(frozen=True, slots=True)
class JudgedJob:
    """The engine's verdict on a job, and the masked line of the log that shows the failure."""

    job: Job
    verdict: EngineVerdict
    line: str

    @classmethod
    def of(cls, job: Job, verdict: EngineVerdict, blocks: Sequence[Block]) -> Self:
        """Return the job and verdict with the line from the logs that were read."""
        return cls(job, verdict, clean_text(line_of(verdict, blocks)))


def needs_verdict(job: Job, verdict: EngineVerdict) -> bool:
    """Return whether the engine's verdict on a job is stored.

    A completed job without a known error gets none.
    """
    return job.state != JobState.COMPLETED or verdict.category is not Category.UNKNOWN


def store_verdicts(judged_jobs: Sequence[JudgedJob], *, at: datetime) -> None:
    """Store verdicts in the caller's transaction.

    An override by a user stays effective, all other fields are updated.
    """
    judged_jobs = sorted(judged_jobs, key=lambda judged: judged.job.pk)
    jobs = [judged.job for judged in judged_jobs]
    stored = Verdict.objects.select_for_update().filter(job__in=jobs).order_by("pk")
    before = {verdict.job_id: verdict for verdict in stored}
    attempts = attempts_by_job(jobs)
    version = current_catalogue().version

    verdicts: list[Verdict] = []
    failures: list[UngroupedVerdict] = []
    for judged in judged_jobs:
        pk = judged.job.pk
        verdict = _verdict(judged, before.get(pk), attempts[pk], version, at)
        verdicts.append(verdict)
        failures.append(
            UngroupedVerdict(verdict, title_of(judged.verdict, verdict.message), judged.line)
        )
    for verdict, group in zip(verdicts, groups_for(failures, at=at, renames=True), strict=True):
        verdict.group = group

    Verdict.objects.bulk_create(
        verdicts, update_conflicts=True, unique_fields=["job"], update_fields=_STORED
    )
    mark_dirty(hour_of(verdict.ended_at) for verdict in (*verdicts, *before.values()))
    events = []
    for verdict in verdicts:
        if _differs(verdict, before):
            events.append(_event(verdict, before.get(verdict.job_id), at))
    publish_all(events=events)


def withdraw_verdicts(jobs: Sequence[Job], *, at: datetime) -> None:
    """Delete the verdicts on jobs that need none, in the caller's transaction.

    Only verdicts of `may_be_withdrawn` are withdrawn; the others stay.
    """
    verdicts = Verdict.objects.select_for_update(of=("self",)).filter(job__in=jobs).order_by("pk")
    withdrawn = [verdict for verdict in verdicts.select_related("job") if may_be_withdrawn(verdict)]
    Verdict.objects.filter(pk__in=[verdict.pk for verdict in withdrawn]).delete()
    mark_dirty(hour_of(verdict.ended_at) for verdict in withdrawn)
    events = []
    for verdict in withdrawn:
        events.append(
            new_event(
                kind="verdict.withdrawn",
                target=verdict.job,
                by="diagnosis",
                at=at,
                old=verdict.verdict,
                reason=wording.COMPLETED,
            )
        )
    publish_all(events=events)


def may_be_withdrawn(verdict: Verdict) -> bool:
    """Return whether a verdict can go: no user overrode it, and no retry followed from it."""
    return not verdict.is_overridden and not verdict.retried_as


def _verdict(
    judged: JudgedJob, old: Verdict | None, attempts: Sequence[Job], version: str, at: datetime
) -> Verdict:
    """Return the new row of a job, without its group."""
    job = judged.job
    engine_verdict = judged.verdict
    cause = engine_verdict.cause
    verdict = engine_verdict.verdict
    advice = engine_verdict.advice
    if old is not None and old.is_overridden:
        verdict = VerdictKind(old.verdict)
        advice = ADVICE_OF[verdict]
    new = Verdict(
        job=job,
        experiment_id=job.experiment_id,
        ended_at=job.ended_at,
        verdict=verdict,
        advice=advice,
        machine_verdict=engine_verdict.verdict,
        category=engine_verdict.category,
        confidence=engine_verdict.confidence,
        cause=cause.pattern.id[:64] if cause else "",
        service=engine_verdict.service[:64],
        message=message_of(engine_verdict, judged.line),
        frame=clean_text(cause.fields.get("frame", "") if cause else "", 200),
        summary=engine_verdict.summary,
        reasons=[
            {
                "kind": reason.kind,
                "text": clean_text(reason.text),
                "target": clean_text(reason.target),
            }
            for reason in engine_verdict.reasons
        ],
        catalogue_version=version,
        decided_at=at,
    )
    new.symptom = symptom_of(new.cause, new.message, new.frame)
    if old is not None:
        new.retried_as = old.retried_as
        new.retried_on_id = old.retried_on_id
        new.retry_state = old.retry_state
    note_later_attempt(new, attempts)
    return new


def _differs(new: Verdict, before: dict[int, Verdict]) -> bool:
    old = before.get(new.job_id)
    return old is None or (old.verdict, old.cause) != (new.verdict, new.cause)


def _event(new: Verdict, old: Verdict | None, at: datetime) -> Event:
    return new_event(
        kind="verdict.decided",
        target=new.job,
        by="diagnosis",
        at=at,
        old=old.verdict if old else "",
        new=new.verdict,
        reason=new.summary,
    )


@transaction.atomic
def assign_experiments(*, jobs: QuerySet[Job]) -> int:
    """Copy the experiments of these jobs to their verdicts; return how many changed."""
    rows = (
        Verdict.objects.select_for_update(of=("self",)).select_related("job").filter(job__in=jobs)
    )
    differing = rows.exclude(experiment=F("job__experiment"))  # includes rows without experiments
    verdicts = [
        verdict for verdict in differing if verdict.experiment_id != verdict.job.experiment_id
    ]
    for verdict in verdicts:
        verdict.experiment_id = verdict.job.experiment_id
    Verdict.objects.bulk_update(verdicts, ["experiment"], batch_size=500)
    mark_dirty({hour_of(verdict.ended_at) for verdict in verdicts})
    return len(verdicts)
