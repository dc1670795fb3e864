"""Read submissions: job numbers, jobs in flight, arrays by stage, failed jobs, resource use."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from django.db.models import Case, Exists, F, Max, OuterRef, Q, QuerySet, Sum, When

from apps.accounts.models import Principal, User
from apps.accounts.permissions import is_operator
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import JobState
from apps.core.domain.events import publish
from apps.core.errors import NotAllowed
from apps.jobs.domain.collection.proof import SKEW
from apps.jobs.models import Job
from apps.production.domain.actors import may
from apps.production.domain.content.scan import Scan, read_scan
from apps.production.domain.outputs.acceptance import acceptances_of
from apps.production.domain.outputs.counts import must_be_located
from apps.production.domain.priority.ranks import by_place
from apps.production.enums import PORTAL, Actor, RequestState
from apps.production.models import Request, Stage, StageAcceptance, StageLocation
from apps.submission.domain.arrays.changed_resources import ResourceChanges
from apps.submission.domain.arrays.scripts import events_of_job, events_of_part
from apps.submission.enums import IN_SCHEDULER, Purpose, RetryState, SubmissionState
from apps.submission.models import Assignment, RetryJob, Submission

#: States in which jobs of a request are submitted.
SENDABLE = frozenset({RequestState.TESTING, RequestState.RUNNING})
#: States in which a cluster can be chosen.
ASSIGNABLE = frozenset({RequestState.QUEUED, *SENDABLE})
#: Submissions in these states are not in the scheduler; no other array of their stage is planned
#: meanwhile.
_WAITING = {SubmissionState.PLANNED, SubmissionState.FAILED}
#: Byte-seconds of a GB-hour.
_GB_HOUR = 1e9 * 3600


def write_ranges(numbers: Iterable[int]) -> str:
    """Write sorted unique numbers as ranges."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])

    parts = []
    for first, last in ranges:
        parts.append(str(first) if first == last else f"{first}-{last}")
    return ",".join(parts)


def read_ranges(text: str) -> Iterator[int]:
    """Yield the numbers of ranges written by `write_ranges` or Slurm.

    IDs of Slurm may have a step (`0-8:4`) and a limit (`%5`).
    """
    for part in filter(None, text.partition("%")[0].split(",")):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        yield from range(int(first), int(last or first) + 1, int(step or 1))


def in_flight(submissions: QuerySet[Submission]) -> int:
    """Return how many jobs are in the scheduler and not finished."""
    sums = submissions.filter(state__in=IN_SCHEDULER, settled_at=None).aggregate(
        sent=Sum("tasks"), ended=Sum("ended")
    )
    return (sums["sent"] or 0) - (sums["ended"] or 0)


def clusters_to_look_at() -> QuerySet[Cluster]:
    """Return the clusters with submission switched on, or with unfinished jobs of the portal."""
    in_scheduler = Submission.objects.filter(
        cluster=OuterRef("pk"), state__in=IN_SCHEDULER, settled_at=None
    )
    owned = RetryJob.objects.filter(
        job__cluster=OuterRef("pk"), as_owner=True, state=RetryState.RELEASED
    )
    return Cluster.objects.filter(Q(submits=True) | Q(Exists(in_scheduler)) | Q(Exists(owned)))


def arrays_to_submit(cluster: Cluster, at: datetime) -> QuerySet[Submission]:
    """Return the arrays to submit to a cluster now.

    Debug re-runs come first, then the others in the order of the queue.
    """
    waiting = Submission.objects.filter(
        cluster=cluster, state=SubmissionState.PLANNED, due_at__lte=at
    )
    is_debug = Q(purpose=Purpose.DEBUG)
    waiting = waiting.filter(Q(request__state__in=SENDABLE) | is_debug)
    waiting = waiting.select_related("request__experiment", "request__assignment")
    return waiting.order_by(
        Case(When(is_debug, then=0), default=1), *by_place("request__"), "number"
    )


def count_retried_jobs(request_pks: Iterable[int]) -> dict[tuple[int, int], int]:
    """Return the number of retried jobs by the request's primary key and the position of the stage.

    Accounting counts them as first attempts. Refused arrays do not count.
    """
    arrays = Submission.objects.filter(request__in=request_pks, purpose=Purpose.PRODUCTION).exclude(
        retry_of=None
    )
    arrays = arrays.exclude(state=SubmissionState.FAILED).order_by()
    sums = arrays.values_list("request_id", "position").annotate(jobs=Sum("tasks"))
    return {(request_pk, position): jobs for request_pk, position, jobs in sums}


def requests_run_by_portal(request_pks: Iterable[int]) -> set[int]:
    """Return which of these requests, by primary key, have jobs that the portal submits.

    These may be future jobs.
    """
    sent = (
        Submission.objects.filter(request__in=request_pks, purpose=Purpose.PRODUCTION)
        .order_by()
        .values_list("request_id", flat=True)
    )
    chosen = Assignment.objects.filter(request__in=request_pks, cluster__submits=True)
    return set(sent.union(chosen.values_list("request_id", flat=True)))


def is_cancellable() -> Q:
    """Match submissions with jobs in the scheduler that are not being cancelled."""
    return Q(state__in=IN_SCHEDULER, settled_at=None, cancel_requested_at=None, cancelled_at=None)


def last_tests(request: Request) -> dict[int, Submission]:
    """Return the last test of each stage, by position."""
    tests = request.submissions.filter(purpose=Purpose.TEST).defer("script").order_by("number")
    return {test.position: test for test in tests}


def lost_arrays(cluster: Cluster, at: datetime, grace: timedelta) -> QuerySet[Submission]:
    """Return submissions that the scheduler may or may not have."""
    unknown = Q(state=SubmissionState.UNKNOWN, due_at__lte=at)
    silent = Q(state=SubmissionState.SENDING, sending_at__lte=at - grace)
    return Submission.objects.filter(unknown | silent, cluster=cluster).select_related(
        "request__experiment"
    )


def arrays_that_take_events(submissions: Iterable[Submission]) -> set[int]:
    """Return which arrays, by primary key, have jobs whose number of events the portal sets.

    The commands of the others do not have the number: they read a dataset to its end, or know it
    from elsewhere.
    """
    arrays = Submission.objects.filter(pk__in=[submission.pk for submission in submissions])
    has_number = Q(script__contains='"$OPSPORTAL_EVENTS_PER_JOB"')
    has_most = Q(script__contains='"$OPSPORTAL_MOST_EVENTS"') & Q(
        script__contains="OPSPORTAL_MOST_EVENTS=$OPSPORTAL_EVENTS_PER_JOB"
    )
    return set(arrays.filter(has_number | has_most).order_by().values_list("pk", flat=True))


def submission_of(job: Job) -> Submission | None:
    """Return the array that a job belongs to, if the portal sent it; IDs are recycled."""
    submissions = Submission.objects.filter(
        cluster=job.cluster_id,
        spool_id=job.spool_id,
        state=SubmissionState.SENT,
        sent_at__lte=job.submitted_at + SKEW,
    )
    return submissions.select_related("request__experiment", "cluster").order_by("-pk").first()


def jobs_of(submission: Submission) -> QuerySet[Job]:
    """Return the last attempt of each collected job of a submission."""
    if not submission.spool_id or submission.sent_at is None:
        return Job.objects.none()
    jobs = Job.objects.filter(
        cluster=submission.cluster_id,
        spool_id=submission.spool_id,
        submitted_at__gte=submission.sent_at - SKEW,
    )
    return jobs.order_by("job_id", "-attempt", "-submitted_at").distinct("job_id")


def index_of(submission: Submission, job_id: str) -> int | None:
    """Return the number of a job by its ID, such as `4711_3`.

    Return None if it is no task of the array.
    """
    _, _, task = job_id.partition("_")
    if not task.isdigit() or int(task) >= submission.tasks:
        return None
    if submission.indices:
        return _numbers(submission.indices)[int(task)]
    return submission.first + int(task)


@lru_cache(maxsize=32)
def _numbers(ranges: str) -> tuple[int, ...]:
    """Return the numbers of ranges, read once for the many jobs of an array."""
    return tuple(read_ranges(ranges))


def indices_of(submission: Submission) -> list[int]:
    """Return the numbers of the jobs of a submission, by task."""
    if submission.indices:
        return list(_numbers(submission.indices))
    return list(range(submission.first, submission.first + submission.tasks))


def completed_indices(submission: Submission) -> set[int]:
    """Return the numbers of the jobs that completed."""
    if submission.completed == submission.tasks:
        return set(indices_of(submission))
    if not submission.completed:
        return set()
    indices = set()
    for job_id, state in jobs_of(submission).values_list("job_id", "state"):
        index = index_of(submission, job_id)
        if state == JobState.COMPLETED and index is not None:
            indices.add(index)
    return indices


def count_completed_twice(
    completed: Mapping[tuple[int, int], int],
) -> Counter[tuple[int, int]]:
    """Return how many jobs of each stage completed although their retry completed, too.

    Accounting may correct a failed job to a completed one after its retry.

    `completed` has the completed jobs of stages by the request's primary key and the position, as
    accounting counts them. Only stages of which the portal knows fewer are examined.
    """
    retries: dict[tuple[int, int], list[tuple[Submission, Submission]]] = {}
    unknown = Counter(completed)
    arrays = Submission.objects.filter(
        request__in={pk for pk, _ in completed}, purpose=Purpose.PRODUCTION
    ).defer("script", "asked", "last_error", "retry_of__script", "retry_of__asked")
    for array in arrays.select_related("retry_of"):
        key = array.request_id, array.position
        unknown[key] -= array.completed
        if array.retry_of and array.completed:
            retries.setdefault(key, []).append((array.retry_of, array))

    stage_of_job: dict[tuple[int, str], tuple[int, int]] = {}
    for key, arrays_of_stage in retries.items():
        if unknown[key] <= 0:
            continue
        for first, retry in arrays_of_stage:
            done = completed_indices(retry)
            for task, number in enumerate(indices_of(first)):
                if number in done:
                    stage_of_job[first.cluster_id, f"{first.spool_id}_{task}"] = key
    if not stage_of_job:
        return Counter()
    jobs = Job.objects.filter(
        request__in={pk for pk, _ in completed},
        job_id__in={job_id for _, job_id in stage_of_job},
        state=JobState.COMPLETED,
    )
    completed_ids = set(jobs.values_list("cluster", "job_id")) & stage_of_job.keys()
    return Counter(stage_of_job[cluster_and_id] for cluster_and_id in completed_ids)


def retried_jobs(submission: Submission) -> dict[int, Job]:
    """Return the collected jobs of a retry by the primary key of each job that they retry.

    Jobs of earlier retries are included.
    """
    by_index = {index_of(submission, job.job_id): job for job in jobs_of(submission)}
    retry_by_job: dict[int, Job] = {}
    earlier = submission.retry_of
    while earlier is not None:
        for pk, job_id in jobs_of(earlier).values_list("pk", "job_id"):
            index = index_of(earlier, job_id)
            if index is not None and index in by_index:
                retry_by_job[pk] = by_index[index]
        earlier = earlier.retry_of
    return retry_by_job


def unretried_indices(submission: Submission, *, verdict: str = "") -> list[int]:
    """Return the numbers of failed jobs that were not retried, optionally only with a verdict."""
    failed = set(read_ranges(submission.failed_indices))
    for retry in submission.retries.all():
        failed -= set(read_ranges(retry.indices))
    if verdict and failed:
        ids = jobs_of(submission).values("pk")
        with_verdict = Job.objects.filter(pk__in=ids, verdict__verdict=verdict)
        failed &= {
            index_of(submission, job_id) for job_id in with_verdict.values_list("job_id", flat=True)
        }
    return sorted(failed)


@dataclass
class PointCounts:
    """How many jobs of a stage at one point of a scan are planned, and how many completed."""

    planned: int = 0
    completed: int = 0


@dataclass(frozen=True)
class EventsInPart:
    """How many jobs completed with a part of their events, and how many events they lack.

    `is_exact` is false while the number of events is an estimate.
    """

    jobs: int = 0
    events_missing: int = 0
    is_exact: bool = True


def events_in_part(stage: Stage, submissions: Iterable[Submission]) -> EventsInPart:
    """Return how many events are missing because jobs were retried with a part of their events.

    Exact once an array has finished. Which of its jobs completed until then is not stored: they
    count as the first ones that did not fail, and some jobs may lack one event more than others.
    """
    jobs = 0
    missing = 0
    is_exact = True
    for submission in submissions:
        part = ResourceChanges.read(submission.changes).events_part
        if part and submission.completed:
            failed = set(read_ranges(submission.failed_indices))
            good = [index for index in indices_of(submission) if index not in failed]
            points = read_scan(stage.request.scan).count if stage.request_id else 1
            jobs += submission.completed
            lacking = []
            for index in good:
                events = events_of_job(stage.events or 0, stage.jobs or 1, index, points=points)
                lacking.append(events - events_of_part(events, part))
            missing += sum(lacking[: submission.completed])
            has_finished = submission.completed == len(good)
            is_exact = is_exact and (has_finished or len(set(lacking)) == 1)
    return EventsInPart(jobs, missing, is_exact)


@dataclass
class MemoryUse:
    """GB-hours that jobs requested and used, memory times wall time, where both are known.

    A job counts as using its peak all the time.
    """

    requested: float = 0.0
    used: float = 0.0

    @property
    def unused(self) -> float:
        return max(0.0, self.requested - self.used)


@dataclass
class StageSubmissions:
    """The submissions of one stage.

    `other_completed` counts completed jobs of the stage that the portal did not submit.
    """

    stage: Stage
    submissions: list[Submission] = field(default_factory=list)
    test: Submission | None = None
    longest_seconds: int | None = None
    most_memory_bytes: int | None = None
    memory_use: MemoryUse = field(default_factory=MemoryUse)
    acceptance: StageAcceptance | None = None
    is_located: bool = True
    other_completed: int = 0

    @property
    def waits_to_be_located(self) -> bool:
        """Return whether its jobs are done but its outputs must still be located."""
        is_done = self.acceptance is not None or self.completed >= (self.stage.jobs or 0) > 0
        return is_done and not self.is_located

    @property
    def rows(self) -> list[Submission]:
        """Return all submissions, the last test first."""
        if not self.test:
            return self.submissions
        return [self.test, *self.submissions]

    @property
    def sent(self) -> int:
        return sum(
            submission.tasks
            for submission in self.submissions
            if submission.state == SubmissionState.SENT and submission.retry_of_id is None
        )

    @property
    def completed(self) -> int:
        return sum(submission.completed for submission in self.submissions)

    @property
    def part(self) -> EventsInPart:
        """Return how many jobs completed with a part of their events, and how many are missing."""
        return events_in_part(self.stage, self.submissions)

    @property
    def running(self) -> int:
        return sum(
            submission.tasks - submission.ended
            for submission in self.submissions
            if submission.state == SubmissionState.SENT
        )

    @property
    def retries_planned(self) -> int:
        """Return the number of jobs whose retry has not been submitted yet."""
        return sum(
            submission.tasks
            for submission in self.submissions
            if submission.state in _WAITING and submission.retry_of_id is not None
        )

    def waits_on(self, cluster: Cluster) -> bool:
        """Return whether an array is planned or refused.

        Retries on other clusters do not count: they wait for room there.
        """
        for submission in self.submissions:
            is_elsewhere = submission.retry_of_id and submission.cluster_id != cluster.pk
            if submission.state in _WAITING and not is_elsewhere:
                return True
        return False

    @property
    def first_free(self) -> int:
        """Return the number of the first job in no array."""
        return max(
            (
                submission.first + submission.tasks
                for submission in self.submissions
                if submission.retry_of_id is None
            ),
            default=0,
        )

    def points(self, scan: Scan) -> list[PointCounts]:
        """Return the submissions of each point of a scan; without a scan there is one point."""
        points = [PointCounts() for _ in range(scan.count)]
        for submission in self.submissions:
            point = points[min(submission.first // scan.jobs_each(self.stage.jobs), scan.count - 1)]
            point.completed += submission.completed
            if submission.retry_of_id is None:
                point.planned += submission.tasks
        return points

    @property
    def to_retry(self) -> int:
        """Return the number of failed jobs to retry; none if the stage was accepted as is."""
        if self.acceptance is not None:
            return 0
        failed = sum(submission.ended - submission.completed for submission in self.submissions)
        return failed - sum(
            submission.tasks for submission in self.submissions if submission.retry_of_id
        )


def stage_submissions_of(request: Request) -> list[StageSubmissions]:
    """Return each stage with its submissions, in four queries; their peak use is not measured."""
    accepted = acceptances_of([request])
    located = set(
        StageLocation.objects.filter(stage__request=request).values_list("stage", flat=True)
    )
    by_stage = {}
    for stage in request.stages.all():
        by_stage[stage.position] = StageSubmissions(
            stage,
            acceptance=accepted.get(stage.pk),
            is_located=stage.pk in located or not must_be_located(stage),
        )
    for submission in (
        request.submissions.select_related("cluster", "retry_of__cluster")
        .defer("script", "retry_of__script")
        .order_by("number")
    ):
        if submission.position in by_stage and submission.is_test:
            by_stage[submission.position].test = submission
        elif submission.position in by_stage and submission.purpose == Purpose.PRODUCTION:
            by_stage[submission.position].submissions.append(submission)
    return list(by_stage.values())


def measure(by_stage: Iterable[StageSubmissions]) -> None:
    """Set what the ended jobs of each stage used, in one query.

    The longest run time and the peak memory are of completed jobs, the GB-hours of all jobs.
    """
    by_array: dict[tuple[int, str], tuple[StageSubmissions, Submission]] = {}
    for stage_submissions in by_stage:
        for submission in stage_submissions.rows:
            if submission.spool_id:
                by_array[submission.cluster_id, submission.spool_id] = (
                    stage_submissions,
                    submission,
                )
    if not by_array:
        return

    since = (
        min(submission.sent_at for _, submission in by_array.values() if submission.sent_at) - SKEW
    )
    jobs = Job.objects.filter(spool_id__in={spool for _, spool in by_array})
    is_completed = Q(state=JobState.COMPLETED)
    is_measured = Q(requested_memory_bytes__isnull=False, max_memory_bytes__isnull=False)
    jobs_by_array = jobs.filter(submitted_at__gte=since).order_by().values("cluster_id", "spool_id")
    for used_by_array in jobs_by_array.annotate(
        longest=Max("wall_seconds", filter=is_completed),
        peak=Max("max_memory_bytes", filter=is_completed),
        requested=Sum(
            F("requested_memory_bytes") / _GB_HOUR * F("wall_seconds"), filter=is_measured
        ),
        used=Sum(F("max_memory_bytes") / _GB_HOUR * F("wall_seconds"), filter=is_measured),
    ):
        array = by_array.get((used_by_array["cluster_id"], used_by_array["spool_id"]))
        if array is None:
            continue
        stage_submissions, _ = array
        stage_submissions.longest_seconds = _larger(
            stage_submissions.longest_seconds, used_by_array["longest"]
        )
        stage_submissions.most_memory_bytes = _larger(
            stage_submissions.most_memory_bytes, used_by_array["peak"]
        )
        stage_submissions.memory_use.requested += used_by_array["requested"] or 0
        stage_submissions.memory_use.used += used_by_array["used"] or 0


def _larger(first: int | None, second: int | None) -> int | None:
    return max(filter(None, (first, second)), default=None)


def publish_event(
    kind: str,
    submission: Submission,
    at: datetime,
    *,
    by: Principal = PORTAL,
    reason: str = "",
    **data: Any,
) -> None:
    """Publish an event of a submission in the timeline of its request."""
    stage = submission.stage_name
    if submission.purpose == Purpose.DEBUG:
        stage += " (debug re-run)"
    about = {
        "submission": submission.number,
        "stage": stage,
        "cluster": submission.cluster.name,
        "tasks": submission.tasks,
        "attempt": submission.attempts,
        "spool_id": submission.spool_id,
    }
    publish(
        kind=kind,
        target=submission.request,
        by=by,
        at=at,
        new=submission.state,
        reason=reason,
        data={**about, **data},
    )


def assignment_of(request: Request) -> Assignment | None:
    """Return the assignment of a request with its cluster; None if it has none."""
    assignment = Assignment.objects.filter(request=request).select_related("cluster").first()
    if assignment is not None:
        assignment.request = request  # keeps the related rows that were read with it
    return assignment


def may_submit(user: User, request: Request) -> bool:
    return may(user, Actor.OPERATOR, request)


def may_submit_as_owner(user: User, experiment_id: int | None) -> bool:
    """Return whether a user may retry jobs of an experiment that the portal did not submit.

    None stands for jobs without an experiment.
    """
    return is_operator(user, experiment_id)


def check_may_submit(user: User, request: Request) -> None:
    """Raise `NotAllowed` if a user may not submit the jobs of a request."""
    if not may_submit(user, request):
        raise NotAllowed("Only approvers and shifters can submit jobs.")


def requested_limit(request: Request) -> int | None:
    """Return the job limit that the request itself states, as for keep-up processing."""
    limit = request.arguments.get("most_in_flight")
    return limit if isinstance(limit, int) and limit > 0 else None
