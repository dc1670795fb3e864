"""Plan the next array of a request: its tests, then its stages."""

from collections.abc import Callable, Sequence
from datetime import datetime

from django.db import transaction
from django.db.models import Max

from apps.accounts.models import Principal
from apps.clusters.models import Cluster
from apps.clusters.schedulers.options import MAX_TEST_EVENTS, SubmissionOptions
from apps.production.domain.content.scan import Scan, read_scan
from apps.production.domain.content.stages import with_stages
from apps.production.domain.holds import hold_of
from apps.production.domain.outputs.datasets import DataFile
from apps.production.enums import PORTAL, RequestState
from apps.production.models import Request, Stage
from apps.submission.domain.arrays.changed_resources import NO_CHANGES, ResourceChanges
from apps.submission.domain.arrays.files import (
    Listing,
    follow_jobs,
    is_ready_to_start,
    list_files,
    merge_sources,
    noting_faults,
    stages_by_job,
    stages_with_files,
    takes_files,
    with_listing,
)
from apps.submission.domain.arrays.keepup import take_new_files
from apps.submission.domain.arrays.merging import ended_stages, start_merges, take_groups
from apps.submission.domain.arrays.rows import NewArray, new_submission, options_of, plans_of
from apps.submission.domain.arrays.scout_resources import resources_after_scouts
from apps.submission.domain.arrays.scouts import jobs_allowed
from apps.submission.domain.arrays.submissions import (
    SENDABLE,
    StageSubmissions,
    completed_indices,
    indices_of,
    last_tests,
    publish_event,
    stage_submissions_of,
)
from apps.submission.enums import Purpose
from apps.submission.models import Assignment, Submission


def plan_next(*, assignment: Assignment, at: datetime) -> Submission | None:
    """Plan the next array of a request if one is due: of a stage, or a test.

    Not in a transaction, because a catalogue may be asked. Raises `InvalidFields` if the stage
    cannot run, `SchedulerError` for invalid options of the cluster.
    """
    return with_listing(lambda listing: _plan_next(assignment, listing, at))


@transaction.atomic
def _plan_next(assignment: Assignment, listing: Listing, at: datetime) -> Submission | None:
    request = lock_request(assignment.request)
    if request.state not in SENDABLE or not assignment.cluster.submits:
        return None
    assignment.request = request
    if request.state == RequestState.TESTING:
        return _plan_test(request, assignment, listing, at)
    if takes_files(request):
        submission = _plan_files(request, assignment, listing, at)
    else:
        submission = _plan_jobs(request, assignment, listing, at)
    return submission or _plan_merge(request, assignment, at)


def _plan_jobs(
    request: Request, assignment: Assignment, listing: Listing, at: datetime
) -> Submission | None:
    """Plan jobs of the first stage with unplanned jobs whose previous stage is complete.

    The points of a scan have equal shares of the jobs, and count separately; a request without a
    scan has one point.
    """
    scan = read_scan(request.scan)
    by_stage = stage_submissions_of(request)
    merges = merge_sources(request)
    ended = ended_stages(request, by_stage, at) if merges else set()

    # The points whose jobs of the previous stage completed: their next jobs may start.
    ready_points: Sequence[int] = range(scan.count)
    for stage_submissions in by_stage:
        stage = stage_submissions.stage
        if stage.position in merges:
            if stage.position not in ended:
                ready_points = []
            continue

        points = stage_submissions.points(scan)
        jobs_each = scan.jobs_each(stage.jobs)
        unplanned = [point for point in ready_points if points[point].planned < jobs_each]
        if unplanned and _may_plan(assignment, stage_submissions):
            return _plan_jobs_of_point(
                unplanned[0], scan, stage_submissions, assignment, listing, at
            )

        if not stage_submissions.is_located:  # the next stage reads its outputs from the catalogue
            return None
        if not stage_submissions.acceptance:
            ready_points = [point for point in ready_points if points[point].completed >= jobs_each]
    return None


def _may_plan(assignment: Assignment, stage_submissions: StageSubmissions) -> bool:
    """Return whether jobs of a stage may be planned: it is not accepted, waiting or on hold."""
    return not (
        stage_submissions.acceptance
        or stage_submissions.waits_on(assignment.cluster)
        or hold_of(assignment.request, stage_submissions.stage)
    )


def _plan_jobs_of_point(
    point: int,
    scan: Scan,
    stage_submissions: StageSubmissions,
    assignment: Assignment,
    listing: Listing,
    at: datetime,
) -> Submission | None:
    """Plan the next jobs of one point of the scan in a stage, as many as fit into an array."""
    request = assignment.request
    stage = stage_submissions.stage
    points = stage_submissions.points(scan)
    jobs_each = scan.jobs_each(stage.jobs)

    options = options_of(assignment.cluster)
    planned_jobs = sum(counts.planned for counts in points)
    allowed = jobs_allowed(request, stage, planned=planned_jobs, scouts=options.scouts, at=at)
    if not allowed or not is_ready_to_start(assignment, stage, listing, at=at):
        return None

    # The script of an array is for one point, so an array ends where the next point starts.
    first_job = point * jobs_each + points[point].planned
    left_of_point = (point + 1) * jobs_each - first_job
    changes = NO_CHANGES
    # All scouts of a scan are of its first point, which says little of the others.
    if options.scouts_measure and scan.count == 1:
        changes = resources_after_scouts(stage, assignment.cluster, at=at)
    array = NewArray(
        request=request,
        cluster=assignment.cluster,
        plan=plans_of(request, job=first_job)[stage.position],
        first=first_job,
        tasks=min(array_size(assignment, options), allowed, left_of_point),
        changes=changes,
    )
    return plan_jobs(array, by=PORTAL, at=at)


def _plan_files(
    request: Request, assignment: Assignment, listing: Listing, at: datetime
) -> Submission | None:
    """Plan jobs of new files for the first stage, or of completed jobs for a later one."""
    submissions: list[Submission] = []
    merges = merge_sources(request)
    for stage_submissions in stage_submissions_of(request):
        stage = stage_submissions.stage
        if stage.position in merges:
            continue
        previous = submissions
        submissions = stage_submissions.submissions
        if not _may_plan(assignment, stage_submissions):
            continue
        most = array_size(assignment, options_of(assignment.cluster))
        if stage.position == 0:
            first = stage_submissions.first_free
            jobs = take_new_files(assignment, listing, first=first, most=most, at=at)
            indices = list(range(first, first + jobs))
        else:
            indices = _indices_to_plan(submissions, previous)[:most]
        if indices:
            plan = plans_of(request)[stage.position]
            array = NewArray(request, assignment.cluster, plan, indices=indices)
            return plan_jobs(array, by=PORTAL, at=at)
    return None


def _plan_merge(request: Request, assignment: Assignment, at: datetime) -> Submission | None:
    """Plan jobs of groups of files for the first merge stage that has some."""
    merges = merge_sources(request)
    if not merges:
        return None
    by_stage = stage_submissions_of(request)
    ended = ended_stages(request, by_stage, at)
    for position, source in merges.items():
        stage_submissions = by_stage[position]
        if not _may_plan(assignment, stage_submissions):
            continue
        first = stage_submissions.first_free
        jobs = take_groups(
            stage_submissions.stage,
            source=source,
            has_ended=source.position in ended,
            first=first,
            most=array_size(assignment, options_of(assignment.cluster)),
            at=at,
        )
        if jobs:
            plan = plans_of(request)[position]
            indices = range(first, first + jobs)
            array = NewArray(request, assignment.cluster, plan, indices=indices)
            return plan_jobs(array, by=PORTAL, at=at)
    return None


def _indices_to_plan(
    submissions: Sequence[Submission], previous: Sequence[Submission]
) -> list[int]:
    """Return the numbers of jobs that the previous stage completed and this one has not planned."""
    planned: set[int] = set()
    for submission in submissions:
        if submission.retry_of_id is None:
            planned.update(indices_of(submission))

    completed: set[int] = set()
    for submission in previous:
        completed |= completed_indices(submission)
    return sorted(completed - planned)


def _plan_test(
    request: Request, assignment: Assignment, listing: Listing, at: datetime
) -> Submission | None:
    """Plan the test of the first stage without one, or whose failed test was acted on."""
    tests = last_tests(request)
    for stage in stages_by_job(request):
        last = tests.get(stage.position)
        if last is not None and last.settled_at and last.completed:
            continue
        if (last is not None and not (last.settled_at and last.answered_at)) or hold_of(
            request, stage
        ):
            return None
        files: list[str] = []
        with noting_faults(assignment, at=at) as asks:
            if asks:
                files = files_of_test(request, stage, listing.files_of)
        if assignment.listing_error or (takes_files(request) and not files):
            return None
        events = events_of_test(assignment.cluster)
        plan = plans_of(request, test_events=events)[stage.position]
        files_by_job = {0: files} if files else None
        array = NewArray(request, assignment.cluster, plan, tasks=1, files=files_by_job)
        return plan_jobs(array, by=PORTAL, at=at)
    return None


def files_of_test(
    request: Request, stage: Stage, files_of: Callable[[Stage], list[DataFile]] = list_files
) -> list[str]:
    """Return the name of the file that the test of a stage reads, if there is one.

    `files_of` returns the files of a stage: by default the catalogue is asked now. Raises
    `InvalidFields` if the files cannot be listed.
    """
    if stage not in stages_with_files(request):
        return []
    if takes_files(request):
        stage = request.stages.all()[0]
    return [file.name for file in files_of(stage)[:1]]


def events_of_test(cluster: Cluster) -> int:
    """Return how many events a test on a cluster has at most. Raises `SchedulerError`."""
    return options_of(cluster).test_events or MAX_TEST_EVENTS


def array_size(assignment: Assignment, options: SubmissionOptions) -> int:
    """Return the maximum size of an array: all of it must fit the limits in flight."""
    limits = (
        options.array_size,
        options.limit_of(assignment.request.experiment.key),
        assignment.most_in_flight,
    )
    return min(limit for limit in limits if limit)


def plan_retry(
    *,
    submission: Submission,
    request: Request,
    indices: Sequence[int],
    by: Principal,
    at: datetime,
    reason: str,
    changes: ResourceChanges | None = None,
    cluster: Cluster | None = None,
) -> Submission:
    """Plan these jobs of a submission again, with changed resources if there are any.

    They stay on their cluster unless the `changes` name the given one. Raises `InvalidFields` if
    the stage cannot run, `SchedulerError` for invalid options of the cluster.
    """
    array = NewArray(
        request=request,
        cluster=cluster or submission.cluster,
        plan=plans_of(request, job=submission.first)[submission.position],
        indices=indices,
        retry_of=submission,
        changes=changes or NO_CHANGES,
    )
    return plan_jobs(array, by=by, at=at, reason=reason)


def plan_jobs(array: NewArray, *, by: Principal, at: datetime, reason: str = "") -> Submission:
    """Store the next array of a request and publish the event.

    Raises `SchedulerError` if the options of the cluster are invalid.
    """
    if array.plan.purpose == Purpose.PRODUCTION:
        start_merges(array.request, array.plan.position, at=at)
    submission = new_submission(array, number=next_number(array.request), by=by, at=at)
    submission.save(force_insert=True)
    follow_jobs(submission, at=at)
    data = {
        "first": submission.first,
        "test": submission.is_test,
        "retry_of": submission.retry_of.number if submission.retry_of else None,
        "script_sha256": submission.script_sha256,
        "changes": submission.changes,
    }
    publish_event(
        "submission.planned", submission, at, by=submission.created_by, reason=reason, **data
    )
    return submission


def next_number(request: Request) -> int:
    """Return the number of the next submission of a request, which is locked."""
    return (request.submissions.aggregate(last=Max("number"))["last"] or 0) + 1


def lock_request(request: Request) -> Request:
    """Lock and re-read the request, so that only one process plans for it."""
    Request.objects.select_for_update().only("pk").get(pk=request.pk)
    locked_request: Request = with_stages(Request.objects.filter(pk=request.pk)).get()
    return locked_request
