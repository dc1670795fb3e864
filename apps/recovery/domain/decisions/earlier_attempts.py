"""Earlier attempts of failed jobs: what was decided about them, and what they were to have."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from apps.jobs.models import Job
from apps.production.models import Request, Stage
from apps.recovery.domain.decisions.remedies import RequestedResources
from apps.recovery.models import Decision
from apps.submission.domain.arrays.changed_resources import ResourceChanges
from apps.submission.domain.arrays.submissions import arrays_that_take_events, index_of
from apps.submission.models import RetryJob, Submission


class ArrayPlace(NamedTuple):
    """A job of an array: the primary key of its submission, and its number in the array."""

    submission_pk: int
    job_number: int


def earlier_decisions(
    places: Mapping[int, ArrayPlace], others: Sequence[Job]
) -> dict[int, Decision]:
    """Return what was decided about the attempt before each failed job, by its primary key.

    `places` has the place of each job that the portal submitted; `others` are the jobs that it did
    not submit. Only attempts that a batch retried have one. Two queries.
    """
    decisions_by_place = _decisions_by_place({place.submission_pk for place in places.values()})
    earlier = {}
    for job_pk, place in places.items():
        if place in decisions_by_place:
            earlier[job_pk] = decisions_by_place[place]

    decisions_by_spool_id = _decisions_by_spool_id(others)
    for other in others:
        decision = decisions_by_spool_id.get((other.cluster_id, other.spool_id))
        if decision is not None:
            earlier[other.pk] = decision
    return earlier


def _decisions_by_place(submission_pks: set[int]) -> dict[ArrayPlace, Decision]:
    """Return the decisions on the jobs that these submissions retry, by the place of the retry."""
    retry_jobs = RetryJob.objects.filter(submission__in=submission_pks, job__recovery__isnull=False)
    retry_jobs = retry_jobs.select_related("job__recovery", "submission__retry_of").defer(
        "submission__script", "submission__retry_of__script"
    )
    decisions = {}
    for retry_job in retry_jobs:
        retry = retry_job.submission
        retried = retry.retry_of if retry else None
        if retry is None or retried is None:
            continue
        index = index_of(retried, retry_job.job.job_id)
        if index is not None:
            decisions[ArrayPlace(retry.pk, index)] = retry_job.job.recovery
    return decisions


def _decisions_by_spool_id(jobs: Sequence[Job]) -> dict[tuple[int, str], Decision]:
    """Return the decisions on the jobs that these jobs retry as their owners, by cluster and ID."""
    spool_ids = {job.spool_id for job in jobs}
    retry_jobs = RetryJob.objects.exclude(spool_id="").filter(
        spool_id__in=spool_ids, job__recovery__isnull=False
    )
    decisions = {}
    for retry_job in retry_jobs.select_related("job__recovery"):
        decisions[retry_job.job.cluster_id, retry_job.spool_id] = retry_job.job.recovery
    return decisions


def resources_of_stages(
    submissions: Sequence[Submission], *, with_events: bool = False
) -> dict[int, RequestedResources]:
    """Return what the stage of each submission asks for, by its primary key, in one query.

    `with_events` reads how many events its jobs had, in one more query.
    """
    requests = {submission.request_id for submission in submissions}
    stages = {}
    events = {}
    for stage in Stage.objects.filter(request__in=requests):
        stages[stage.request_id, stage.position] = RequestedResources(
            memory_bytes=stage.memory_bytes or 0,
            time_limit_seconds=stage.wall_seconds or 0,
            retry_memory_bytes=stage.retry_memory_bytes or 0,
            retry_time_limit_seconds=stage.retry_wall_seconds or 0,
        )
        events[stage.request_id, stage.position] = (stage.events or 0) // (stage.jobs or 1)
    takes_events = arrays_that_take_events(submissions) if with_events else set()
    requested = {}
    for submission in submissions:
        stage_key = (submission.request_id, submission.position)
        resources = stages.get(stage_key, RequestedResources())
        if submission.pk in takes_events:
            part = ResourceChanges.read(submission.changes).events_part
            resources = replace(
                resources, events_per_job=events.get(stage_key, 0), events_part=part
            )
        requested[submission.pk] = resources
    return requested


def workflow_types(submissions: Sequence[Submission]) -> dict[int, str]:
    """Return the keys of the workflow types of the requests of submissions, in one query."""
    requests = Request.objects.filter(pk__in={submission.request_id for submission in submissions})
    return dict(requests.values_list("pk", "workflow__type__key"))
