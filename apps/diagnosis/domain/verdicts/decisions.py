"""Store the verdicts on analysed jobs in their failure groups, with events, in few statements."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from apps.core.domain.events import new_event, publish_all
from apps.core.models import Event
from apps.diagnosis.domain.causes.totals import mark_dirty
from apps.diagnosis.domain.groups.fingerprints import line_of, message_of, symptom_of, title_of
from apps.diagnosis.domain.groups.triage import Failure, groups_for
from apps.diagnosis.domain.known_errors.current import current
from apps.diagnosis.domain.reading.attempts import attempts_by_job, note_later_attempt
from apps.diagnosis.engine.base import Block
from apps.diagnosis.engine.base import Verdict as Decided
from apps.diagnosis.models import Verdict
from apps.jobs.domain.records.conversion import clean_text, hour_of
from apps.jobs.models import Job

#: The fields that an analysis stores; the others of a verdict come from users or retries.
_STORED = (
    *(
        "experiment",
        "ended_at",
        "verdict",
        "advice",
        "later_attempt",
        "later_state",
        "machine_verdict",
        "category",
    ),
    *(
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
    ),
    "decided_at",
)


@dataclass(frozen=True, slots=True)
class Decision:
    """The engine's verdict on a job, and the masked line of the log that shows the failure."""

    job: Job
    verdict: Decided
    line: str

    @classmethod
    def of(cls, job: Job, verdict: Decided, blocks: Sequence[Block]) -> Self:
        """Return the decision with its line from the logs that were read."""
        return cls(job, verdict, clean_text(line_of(verdict, blocks)))


def store_verdicts(decisions: Sequence[Decision], *, at: datetime) -> None:
    """Store verdicts in the caller's transaction.

    An override by a user stays effective, all other fields are updated.
    """
    decisions = sorted(decisions, key=lambda decision: decision.job.pk)
    jobs = [decision.job for decision in decisions]
    rows = Verdict.objects.select_for_update().filter(job__in=jobs).order_by("pk")
    before = {row.job_id: row for row in rows}
    attempts = attempts_by_job(jobs)
    version = current().version

    verdicts: list[Verdict] = []
    failures: list[Failure] = []
    for decision in decisions:
        pk = decision.job.pk
        verdict = _verdict(decision, before.get(pk), attempts[pk], version, at)
        verdicts.append(verdict)
        failures.append(
            Failure(verdict, title_of(decision.verdict, verdict.message), decision.line)
        )
    for verdict, group in zip(verdicts, groups_for(failures, at=at, renames=True), strict=True):
        verdict.group = group

    Verdict.objects.bulk_create(
        verdicts, update_conflicts=True, unique_fields=["job"], update_fields=_STORED
    )
    mark_dirty(hour_of(row.ended_at) for row in (*verdicts, *before.values()))
    events = []
    for row in verdicts:
        if _differs(row, before):
            events.append(_event(row, before.get(row.job_id), at))
    publish_all(events=events)


def _verdict(
    decision: Decision, old: Verdict | None, attempts: Sequence[Job], version: str, at: datetime
) -> Verdict:
    """Return the new row of a job, without its group."""
    job = decision.job
    decided = decision.verdict
    cause = decided.cause
    new = Verdict(
        job=job,
        experiment_id=job.experiment_id,
        ended_at=job.ended_at,
        verdict=old.verdict if old and old.is_overridden else decided.verdict,
        machine_verdict=decided.verdict,
        category=decided.category,
        confidence=decided.confidence,
        cause=cause.pattern.id[:64] if cause else "",
        service=decided.service[:64],
        message=message_of(decided, decision.line),
        frame=clean_text(cause.fields.get("frame", "") if cause else "", 200),
        summary=decided.summary,
        reasons=[
            {"kind": r.kind, "text": clean_text(r.text), "target": clean_text(r.target)}
            for r in decided.reasons
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
