"""Planning the next array of a request: its tests, then its stages."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Max

from apps.accounts.models import Principal
from apps.clusters.models import Cluster
from apps.clusters.schedulers.options import MAX_TEST_EVENTS, SubmissionOptions
from apps.production.domain.content.scan import read_scan
from apps.production.domain.content.stages import with_stages
from apps.production.domain.holds import hold_of
from apps.production.enums import PORTAL, RequestState
from apps.production.models import Request
from apps.submission.domain.arrays import new_submission, options_of, plans_of
from apps.submission.domain.keepup import listed_files, take_new_files, takes_files
from apps.submission.domain.scripts import StagePlan
from apps.submission.domain.submissions import (
    SENDABLE,
    completed_of,
    indices_of,
    last_tests,
    publish_event,
    standings_of,
)
from apps.submission.models import Assignment, Submission


@transaction.atomic
def plan_next(*, assignment: Assignment, at: datetime) -> Submission | None:
    """Plan the next array of a request if one is due: of its first incomplete stage, or the next test.

    Raises `InvalidFields` if the stage cannot run, `SchedulerError` for invalid options of the cluster.
    """
    request = locked(assignment.request)
    if request.state not in SENDABLE or not assignment.cluster.submits:
        return None
    assignment.request = request
    if request.state == RequestState.TESTING:
        return _plan_test(request, assignment, at)
    return _plan_files(request, assignment, at) if takes_files(request) else _plan_stage(request, assignment, at)


def _plan_stage(request: Request, assignment: Assignment, at: datetime) -> Submission | None:
    """Plan jobs of the first stage that has some at a point whose previous stage is complete.

    The points are those of a scan, each with an equal share of the jobs; any other request has one.
    """
    scan = read_scan(request.scan)
    ready: Sequence[int] = range(scan.count)
    for standing in standings_of(request):
        stage, points, each = standing.stage, standing.points(scan), scan.jobs_each(standing.stage.jobs)
        begun = [point for point in ready if points[point].planned < each]
        if begun and not (standing.acceptance or standing.is_waiting or hold_of(request, stage)):
            # No array has jobs of two points: its script is that of one.
            first = begun[0] * each + points[begun[0]].planned
            tasks = min(array_size(assignment, options_of(assignment.cluster)), (begun[0] + 1) * each - first)
            return _plan(assignment, plans_of(request, job=first)[stage.position], at, first=first, tasks=tasks)
        if not standing.is_located:  # the next stage reads its outputs from the catalogue
            return None
        ready = [n for n in ready if standing.acceptance or points[n].completed >= each]
    return None


def _plan_files(request: Request, assignment: Assignment, at: datetime) -> Submission | None:
    """Plan jobs of new files for the first stage, or of completed jobs of the previous stage for a later one."""
    mine: list[Submission] = []
    for standing in standings_of(request):
        stage, previous, mine = standing.stage, mine, standing.submissions
        if standing.acceptance or standing.is_waiting or hold_of(request, stage):
            continue
        most = array_size(assignment, options_of(assignment.cluster))
        if stage.position == 0:
            first = standing.first_free
            indices = list(range(first, first + take_new_files(assignment, first=first, most=most, at=at)))
        else:
            there = {index for s in mine if s.retry_of_id is None for index in indices_of(s)}
            indices = sorted({index for s in previous for index in completed_of(s)} - there)[:most]
        if indices:
            return _plan(assignment, plans_of(request)[stage.position], at, indices=indices)
    return None


def _plan_test(request: Request, assignment: Assignment, at: datetime) -> Submission | None:
    """Plan the test of the first stage without one, or whose failed test was acted on."""
    tests = last_tests(request)
    for stage in request.stages.all():
        last = tests.get(stage.position)
        if last is not None and last.settled_at and last.completed:
            continue
        if (last is not None and not (last.settled_at and last.answered_at)) or hold_of(request, stage):
            return None
        files = [file.name for file in listed_files(request)[:1]]
        if takes_files(request) and not files:
            return None
        events = options_of(assignment.cluster).test_events or MAX_TEST_EVENTS
        plan = plans_of(request, test_events=events)[stage.position]
        return _plan(assignment, plan, at, tasks=1, files={0: files} if files else None)
    return None


def _plan(assignment: Assignment, plan: StagePlan, at: datetime, **jobs: Any) -> Submission:
    return plan_jobs(request=assignment.request, cluster=assignment.cluster, plan=plan, by=PORTAL, at=at, **jobs)


def array_size(assignment: Assignment, options: SubmissionOptions) -> int:
    """Return the maximum size of an array: all of it must fit the limits in flight."""
    limits = (options.array_size, options.limit_of(assignment.request.experiment.key), assignment.most_in_flight)
    return min(limit for limit in limits if limit)


def plan_retry(
    *, submission: Submission, request: Request, indices: Sequence[int], by: Principal, at: datetime, reason: str
) -> Submission:
    """Plan these jobs of a submission again. Raises `InvalidFields` if the stage cannot run."""
    plan, where = plans_of(request, job=submission.first)[submission.position], submission.cluster
    retry = {"indices": indices, "retry_of": submission}
    return plan_jobs(request=request, cluster=where, plan=plan, by=by, at=at, reason=reason, **retry)


def plan_jobs(
    *, request: Request, cluster: Cluster, plan: StagePlan, by: Principal, at: datetime, reason: str = "", **jobs: Any
) -> Submission:
    """Store the next array of a request, with jobs as for `new_submission`, and publish the event."""
    made = new_submission(
        request=request, cluster=cluster, plan=plan, number=next_number(request), by=by, at=at, **jobs
    )
    made.save(force_insert=True)
    data = {
        "first": made.first,
        "test": made.is_test,
        "retry_of": made.retry_of.number if made.retry_of else None,
        "script_sha256": made.script_sha256,
    }
    publish_event("submission.planned", made, at, by=made.created_by, reason=reason, **data)
    return made


def next_number(request: Request) -> int:
    """Return the number of the next submission of a request, which is locked."""
    return (request.submissions.aggregate(last=Max("number"))["last"] or 0) + 1


def locked(request: Request) -> Request:
    """Lock and re-read the request, so that only one process plans for it."""
    Request.objects.select_for_update().get(pk=request.pk)
    found: Request = with_stages(Request.objects.filter(pk=request.pk)).get()
    return found
