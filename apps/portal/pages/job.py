"""The page of a job, with content from several apps."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apps.accounts.models import User
from apps.archive.domain.store.contents import archived_job_for, shown_environment, shown_script
from apps.archive.models import ArchivedJob
from apps.archive.permissions import sees_environment
from apps.core.domain.event_kinds import what_was_done
from apps.core.domain.events import events_of
from apps.diagnosis.domain.reading.job_facts import needed_services
from apps.diagnosis.domain.reading.log_windows import log_view
from apps.diagnosis.domain.verdicts.correction import job_diagnosis
from apps.diagnosis.domain.verdicts.experience import experience_of
from apps.diagnosis.models import Verdict
from apps.diagnosis.permissions import may_correct_verdict
from apps.diagnosis.web.forms import CorrectionForm
from apps.jobs.domain.collection.origin import log_location
from apps.jobs.domain.phases.reports import phases_of
from apps.jobs.domain.records.jobs import array_siblings, other_attempts
from apps.jobs.models import Job
from apps.production.models import Request
from apps.statusboard.domain.board.outages import ServiceOutage, outages_during
from apps.submission.domain.debugging.rerun import debug_runs_of, debugged_by
from apps.submission.domain.retries.links import find_retried_job, find_retry


@dataclass(frozen=True, slots=True)
class Step:
    """An entry of the job's activity. Only actions of users have `by` and `reason`."""

    at: datetime
    text: str
    by: str = ""
    reason: str = ""


def job_page(*, job: Job, user: User, at: datetime) -> dict[str, Any]:
    """Return the context of the job page.

    `job_request` is None if it is unknown or the user cannot see it.
    """
    archived = archived_job_for(job)
    diagnosis = job_diagnosis(job, at)
    attempts = other_attempts(job)
    retry = find_retry(diagnosis.verdict) if diagnosis.verdict else None
    if diagnosis.verdict:
        initial = {"verdict": diagnosis.verdict.verdict}
    else:
        initial = {}
    requests = Request.objects.visible_to(user).filter(
        key=job.request_key, experiment=job.experiment_id
    )
    context: dict[str, Any] = {
        "job": job,
        "job_request": requests.first(),
        "outages": _outages(job, at),
        "phases": phases_of(job),
        "steps": _steps(job, archived, diagnosis.verdict, attempts, retry),
        "diagnosis": diagnosis,
        "experience": experience_of(diagnosis.verdict, user=user, at=at)
        if diagnosis.verdict
        else None,
        "may_correct_verdict": may_correct_verdict(user, job.experiment_id),
        "correction": CorrectionForm(initial=initial),
        "log": log_view(job),
        "log_location": log_location(job),
        "attempts": attempts,
        "siblings": array_siblings(job),
        "runs": debug_runs_of(job),
        "debug_of": debugged_by(job),
        "retry": retry,
        "retry_of": find_retried_job(job),
        "archived": archived,
    }
    if archived:
        context["script"] = shown_script(archived)
        context["sees_environment"] = sees_environment(user, archived)
        context["environment"] = None
        if context["sees_environment"]:
            context["environment"] = shown_environment(archived)
    return context


def _outages(job: Job, at: datetime) -> list[ServiceOutage]:
    """Return the outages of required services while the job ran; none if it never ran."""
    if job.started_at is None:
        return []
    ids = [service.pk for service in needed_services(job)]
    return outages_during(ids, job.started_at, job.ended_at, at=at)


def _steps(
    job: Job,
    archived: ArchivedJob | None,
    verdict: Verdict | None,
    attempts: Sequence[Job],
    retry: Job | None,
) -> list[Step]:
    steps = [Step(job.submitted_at, f"submitted by {job.user or 'unknown user'}")]
    if archived:
        steps.append(Step(archived.captured_at, "script and environment captured"))
    if job.started_at:
        steps.append(Step(job.started_at, f"started on {job.host}"))
    steps.append(Step(job.ended_at, _state(job)))
    steps.append(Step(job.collected_at, "collected from accounting"))
    if verdict:
        steps.append(
            Step(verdict.decided_at, f"verdict: {verdict.get_machine_verdict_display().lower()}")
        )
    later = [attempt for attempt in attempts if attempt.attempt > job.attempt]
    steps += [Step(other.ended_at, f"attempt {other.attempt} {_state(other)}") for other in later]
    if retry:
        steps.append(Step(retry.ended_at, f"retry {retry.job_id} {_state(retry)}"))
    for event in events_of(job)[:50]:
        steps.append(Step(event.at, what_was_done(event), event.actor, event.reason))
    return sorted(steps, key=lambda step: step.at)


def _state(job: Job) -> str:
    return job.state.replace("_", " ")
