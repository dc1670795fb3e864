"""The page of a job, with content from several apps."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from apps.accounts.models import User
from apps.accounts.permissions import is_operator
from apps.archive.domain.shown_contents import ShownEnvironment, ShownScript
from apps.archive.domain.store.contents import (
    archived_job_for,
    shown_environment,
    shown_script,
)
from apps.archive.models import ArchivedJob
from apps.archive.permissions import sees_environment
from apps.clusters.schedulers.base import JobState
from apps.core.domain.event_kinds import what_was_done
from apps.core.domain.events import events_of
from apps.diagnosis.domain.groups.same_failure import SameFailure, same_failure
from apps.diagnosis.domain.reading.job_facts import services_needed_by
from apps.diagnosis.domain.reading.log_windows import LogView, log_view
from apps.diagnosis.domain.verdicts.experience import Experience, experience_of
from apps.diagnosis.domain.verdicts.job_diagnosis import JobDiagnosis, job_diagnosis
from apps.diagnosis.domain.verdicts.quotes import Quotes, quote_evidence
from apps.diagnosis.models import Verdict
from apps.diagnosis.permissions import may_correct_verdict
from apps.jobs.domain.collection.origin import LogLocation, log_location
from apps.jobs.domain.phases.reports import ShownPhase, phases_of
from apps.jobs.domain.records.energy import JobEnergy, energy_of
from apps.jobs.domain.records.jobs import array_siblings, other_attempts
from apps.jobs.models import Job
from apps.notifications.domain.preferences import level_of
from apps.notifications.enums import Level
from apps.portal.pages.job_timeline import Timeline, timeline_of
from apps.portal.pages.opg_comment import comment_url
from apps.production.models import Request
from apps.progress.domain.resource_use import ResourceAdvice, StageUse, advise, stage_use
from apps.recovery.domain.decisions.explanations import (
    describe_withdrawn_retry,
    planned_retries_of,
    planned_retry_of,
)
from apps.recovery.models import Decision
from apps.statusboard.domain.board.outages import ServiceOutage, outages_during
from apps.submission.domain.debugging.bundle import may_download
from apps.submission.domain.debugging.rerun import debug_runs_of, debugged_by
from apps.submission.domain.retries.links import find_retried_job, find_retry
from apps.submission.domain.retries.obstacles import BatchedRetry, find_batched_retry
from apps.submission.domain.retries.offers import RetryOffer, retry_offer
from apps.submission.models import Submission

#: The retry of a larger group is offered on its own page: a dry run of 5,000 jobs takes half a
#: second.
MOST_IN_GROUP = 500
#: Events in the activity of a job.
MOST_EVENTS = 50


@dataclass(frozen=True, slots=True)
class JobActivity:
    """An entry of the job's activity. Only actions of users have `by` and `reason`."""

    at: datetime
    text: str
    by: str = ""
    reason: str = ""


@dataclass(frozen=True)
class JobPage:
    """What the page of a job shows, by its names in the template.

    `job_request` is None if it is unknown or the user cannot see it. A user without `may_retry` can
    comment on the request at `comment_url`; with `may_debug`, the user can download the bundle.
    `in_batch` is the retry of the job in a batch, `planned_retry` the decision by which a recovery
    rule will retry it. `offer` is None if there is nothing to retry; `group_offer` is None if the
    failure group has no other open jobs, or too many. `runs` are the debug re-runs of the job, and
    `debug_of` is the job that this job re-runs.
    """

    at: datetime
    job: Job
    job_request: Request | None
    is_watching: bool
    activity: list[JobActivity]
    phases: list[ShownPhase]
    timeline: Timeline | None
    stage_use: StageUse | None
    energy: JobEnergy | None
    resource_advice: list[ResourceAdvice]

    diagnosis: JobDiagnosis
    quotes: Quotes | None
    experience: Experience | None
    same_failure: SameFailure | None
    may_correct_verdict: bool
    may_retry: bool
    may_debug: bool
    comment_url: str
    log: LogView
    log_location: LogLocation

    attempts: list[Job]
    siblings: list[Job]
    runs: list[tuple[Submission, Job | None]]
    debug_of: Job | None
    in_batch: BatchedRetry | None
    planned_retry: Decision | None
    withdrawn_retry: str
    offer: RetryOffer | None
    group_offer: RetryOffer | None
    retry: Job | None
    retry_of: Job | None

    archived: ArchivedJob | None
    script: ShownScript | None
    sees_environment: bool
    environment: ShownEnvironment | None


def job_page(*, job: Job, user: User, at: datetime) -> JobPage:
    """Return what the page of a job shows to a user, without its form."""
    archived = archived_job_for(job)
    may_see_environment = archived is not None and sees_environment(user, archived)
    diagnosis = job_diagnosis(job, at, archived=archived)
    verdict = diagnosis.verdict
    failure = same_failure(verdict, stage=job.stage, user=user) if verdict else None

    requests = Request.objects.visible_to(user)
    job_request = requests.filter(key=job.request_key, experiment=job.experiment_id).first()
    comment = ""
    if job_request:
        comment = comment_url(job_request, f"Job {job.job_id} of {job.stage}: ")

    # The failure of a debug re-run is for reading, so no retry is offered for it.
    debug_of = debugged_by(job)
    offer = group_offer = None
    if debug_of is None:
        offer = _offer_retry(job, verdict, user, at)
        group_offer = _offer_group_retry(failure, user, at)
    is_corrected = verdict is not None and verdict.is_overridden and offer is not None

    attempts = other_attempts(job)
    retry = find_retry(verdict) if verdict else None
    phases = phases_of(job)
    use = stage_use(job)
    return JobPage(
        at=at,
        job=job,
        job_request=job_request,
        is_watching=job_request is not None and level_of(user, job_request) == Level.WATCHING,
        activity=_list_activity(job, archived, verdict, attempts, retry),
        phases=phases,
        timeline=timeline_of(job, phases, _outages_during(job, at)),
        stage_use=use,
        energy=energy_of(job),
        resource_advice=advise(job, use),
        diagnosis=diagnosis,
        quotes=quote_evidence(job, verdict) if verdict else None,
        experience=experience_of(verdict, user=user, at=at) if verdict else None,
        same_failure=failure,
        may_correct_verdict=may_correct_verdict(user, job.experiment_id),
        may_retry=is_operator(user, job.experiment_id),
        may_debug=archived is not None and may_download(user, archived),
        comment_url=comment,
        log=log_view(job, verdict=verdict),
        log_location=log_location(job),
        attempts=attempts,
        siblings=array_siblings(job),
        runs=debug_runs_of(job),
        debug_of=debug_of,
        in_batch=find_batched_retry(verdict, at) if verdict and offer else None,
        planned_retry=planned_retry_of(job) if offer else None,
        withdrawn_retry=describe_withdrawn_retry(verdict) if verdict and is_corrected else "",
        offer=offer,
        group_offer=group_offer,
        retry=retry,
        retry_of=find_retried_job(job),
        archived=archived,
        script=shown_script(archived) if archived else None,
        sees_environment=may_see_environment,
        environment=shown_environment(archived) if archived and may_see_environment else None,
    )


def _offer_retry(job: Job, verdict: Verdict | None, user: User, at: datetime) -> RetryOffer | None:
    """Return the retry of a failed job; None if it did not fail, or succeeded since."""
    if verdict is None or verdict.later_state == JobState.COMPLETED:
        return None
    return retry_offer(source=job, user=user, at=at)


def _offer_group_retry(failure: SameFailure | None, user: User, at: datetime) -> RetryOffer | None:
    """Return the retry of all open jobs of a failure group; None if they are too few or many."""
    if failure is None or not 1 < failure.open <= MOST_IN_GROUP:
        return None
    planned = planned_retries_of(failure.group, user).jobs
    return retry_offer(source=failure.group, user=user, at=at, planned=planned)


def _outages_during(job: Job, at: datetime) -> Sequence[ServiceOutage]:
    """Return the outages of services that a job needed while it ran."""
    if job.started_at is None:  # it never ran
        return []
    service_pks = services_needed_by([job])[job.pk]
    return outages_during(service_pks, job.started_at, job.ended_at, at=at)


def _list_activity(
    job: Job,
    archived: ArchivedJob | None,
    verdict: Verdict | None,
    attempts: Sequence[Job],
    retry: Job | None,
) -> list[JobActivity]:
    """Return what happened to a job, oldest first: in the records, then in its newest events."""
    activity = [JobActivity(job.submitted_at, f"submitted by {job.user or 'unknown user'}")]
    if archived:
        activity.append(JobActivity(archived.captured_at, "script and environment captured"))
    if job.started_at:
        activity.append(JobActivity(job.started_at, f"started on {job.host}"))
    activity.append(JobActivity(job.ended_at, JobState(job.state).text))
    activity.append(JobActivity(job.collected_at, "collected from accounting"))

    events = list(events_of(job)[:MOST_EVENTS])
    # The event of the verdict says the same.
    if verdict and not any(event.kind == "verdict.decided" for event in events):
        kind = verdict.get_machine_verdict_display().lower()
        activity.append(JobActivity(verdict.decided_at, f"verdict: {kind}"))
    for attempt in attempts:
        if attempt.attempt > job.attempt:
            state = JobState(attempt.state).text
            activity.append(JobActivity(attempt.ended_at, f"attempt {attempt.attempt} {state}"))
    if retry:
        state = JobState(retry.state).text
        activity.append(JobActivity(retry.ended_at, f"retry {retry.job_id} {state}"))
    for event in events:
        activity.append(JobActivity(event.at, what_was_done(event), event.actor, event.reason))
    return sorted(activity, key=lambda entry: entry.at)
