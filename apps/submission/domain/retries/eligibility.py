"""Which failed jobs can be retried, and why others cannot: the dry run of a batch."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import NamedTuple

from apps.accounts.models import User
from apps.clusters.schedulers.base import JobState
from apps.datasets.domain.ledger import numbers_given_up_of
from apps.diagnosis.domain.causes.impact.count import confirmed_jobs
from apps.diagnosis.models import FailureGroup, Verdict
from apps.jobs.domain.collection.proof import SKEW
from apps.jobs.models import Job
from apps.production.enums import RequestState
from apps.production.models import StageAcceptance
from apps.statusboard.models import Incident
from apps.submission.domain.arrays.submissions import (
    count_retried_jobs,
    index_of,
    may_submit,
    may_submit_as_owner,
    read_ranges,
)
from apps.submission.domain.retries.owned import Foreign
from apps.submission.enums import IN_BATCH, ONLY_BY_OWNER, LeftOut, Purpose, SubmissionState
from apps.submission.models import RetryBatch, RetryJob, Submission

#: What failed jobs are retried for.
Source = FailureGroup | Incident | Job
#: Maximum number of jobs in one batch: the newest.
MOST_JOBS = 5000


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """The maximum number of attempts of a job, and of retried jobs of a stage.

    None for no limit.
    """

    attempts: int | None = None
    of_stage: int | None = None


@dataclass(frozen=True, slots=True)
class RetryCandidate:
    """A failed job that can be retried: its verdict, and its number in the array of the portal.

    Without an array it is submitted as its owner, as the attempt of this number.
    """

    verdict: Verdict
    submission: Submission | None = None
    index: int = 0
    attempt: int = 2


class EligibleInStage(NamedTuple):
    """How many jobs of a stage can be retried."""

    request_key: str
    stage: str
    jobs: int


class EligibleOfOwner(NamedTuple):
    """How many jobs of a user on a cluster can be retried, as that user."""

    cluster: str
    user: str
    jobs: int


@dataclass
class DryRun:
    """The jobs to retry, and the others by reason."""

    eligible: list[RetryCandidate] = field(default_factory=list)
    left_out: dict[LeftOut, list[Verdict]] = field(default_factory=lambda: defaultdict(list))

    @property
    def jobs(self) -> int:
        return len(self.eligible) + sum(map(len, self.left_out.values()))

    @property
    def core_seconds(self) -> int:
        """Return wall time × cores of the failed attempts, which is about what the retries need."""
        return sum(candidate.verdict.job.core_seconds for candidate in self.eligible)

    @property
    def stages(self) -> list[EligibleInStage]:
        """Return the stages of the eligible jobs, those with most jobs first."""
        submissions = [candidate.submission for candidate in self.eligible if candidate.submission]
        counts = Counter(
            (submission.request.key, submission.stage_name) for submission in submissions
        )
        return [EligibleInStage(*place, jobs) for place, jobs in counts.most_common()]

    @property
    def owners(self) -> list[EligibleOfOwner]:
        """Return the owners as whom jobs are submitted, those with most jobs first."""
        jobs = [
            candidate.verdict.job for candidate in self.eligible if candidate.submission is None
        ]
        counts = Counter((job.cluster.name, job.user) for job in jobs)
        return [EligibleOfOwner(*owner, count) for owner, count in counts.most_common()]

    @property
    def only_by_owner(self) -> list[Verdict]:
        """Return the jobs left out that only their owners can submit again."""
        verdicts: list[Verdict] = []
        for reason in ONLY_BY_OWNER:
            verdicts += self.left_out.get(reason, ())
        return verdicts

    @property
    def reasons(self) -> list[tuple[LeftOut, int]]:
        """Return the reasons with their numbers of jobs, in the order of their declaration."""
        return [
            (reason, len(self.left_out[reason])) for reason in LeftOut if self.left_out.get(reason)
        ]


def failed_jobs_of(source: Source, user: User) -> list[Verdict]:
    """Return the verdicts on the jobs to retry for a source that the user may see, newest first."""
    verdicts = Verdict.objects.visible_to(user).select_related("job__cluster", "experiment")
    match source:
        case FailureGroup():
            verdicts = verdicts.filter(group=source)
        case Incident():
            verdicts = verdicts.filter(job__in=confirmed_jobs(source))
        case Job():
            verdicts = verdicts.filter(job=source)
    return list(verdicts.order_by("-ended_at", "-pk")[:MOST_JOBS])


def examine(
    verdicts: Sequence[Verdict],
    *,
    limits: RetryLimits,
    at: datetime,
    user: User | None = None,
    batch: RetryBatch | None = None,
    moving_jobs: Collection[int] = (),
) -> DryRun:
    """Divide failed jobs into those to retry and the others, in a fixed number of queries.

    Without `user` rights are not checked. Jobs that wait in `batch` itself are not left out.
    Submission to the cluster of a job must be switched on, unless its retry runs on another one:
    `moving_jobs` has the primary keys of these jobs.
    """
    dry_run = DryRun()
    facts = _RetryFacts(verdicts, batch, at, moving_jobs)
    # By request (primary key) and position of the stage.
    retries: Counter[tuple[int, int]] = Counter(facts.retried_by_stage)
    allowed: dict[int, bool] = {}
    for verdict in verdicts:
        submission = facts.submission_of(verdict.job)
        reason = facts.reason(verdict, submission)
        if submission is None:
            reason = reason or facts.obstacle_as_owner(verdict, limits, user)
            if reason is None:
                dry_run.eligible.append(
                    RetryCandidate(verdict, attempt=facts.foreign.attempt(verdict.job) + 1)
                )
            else:
                dry_run.left_out[reason].append(verdict)
            continue

        request = submission.request
        index = index_of(submission, verdict.job.job_id)
        if reason is None and user is not None:
            if request.pk not in allowed:
                allowed[request.pk] = may_submit(user, request)
            if not allowed[request.pk]:
                reason = LeftOut.FORBIDDEN
        stage_key = (request.pk, submission.position)
        if reason is None and limits.attempts and facts.attempt(submission) >= limits.attempts:
            reason = LeftOut.ATTEMPTS
        if reason is None and limits.of_stage is not None and retries[stage_key] >= limits.of_stage:
            reason = LeftOut.BUDGET
        if reason is not None or index is None:
            dry_run.left_out[reason or LeftOut.NOT_SENT].append(verdict)
            continue

        retries[stage_key] += 1
        dry_run.eligible.append(RetryCandidate(verdict, submission, index))
    return dry_run


class _RetryFacts:
    """The facts that decide whether jobs can be retried, read for all jobs at once."""

    def __init__(
        self,
        verdicts: Sequence[Verdict],
        batch: RetryBatch | None,
        at: datetime,
        moving_jobs: Collection[int],
    ) -> None:
        self.moving_jobs = moving_jobs
        jobs = [verdict.job for verdict in verdicts]
        self.submissions = arrays_with_ids_of(jobs)
        self.foreign = Foreign([job for job in jobs if self.submission_of(job) is None], at)
        rows = list(chain.from_iterable(self.submissions.values()))
        request_pks = {submission.request_id for submission in rows}
        self.retried_by_stage = count_retried_jobs(request_pks)
        arrays = Submission.objects.filter(request__in=request_pks)
        self.retried_pk_of: dict[int, int | None] = dict(arrays.values_list("pk", "retry_of"))
        accepted = StageAcceptance.objects.filter(stage__request__in=request_pks)
        self.accepted = set(accepted.values_list("stage__request", "stage__position"))
        self.given_up = numbers_given_up_of(request_pks)
        others = RetryJob.objects.filter(job__in=[job.pk for job in jobs], state__in=IN_BATCH)
        if batch:
            others = others.exclude(batch=batch)
        self.in_batch = set(others.values_list("job__pk", flat=True))

        self.failed: dict[int, set[int]] = {}
        self.retried: dict[int, set[int]] = {}
        for submission in rows:
            self.failed[submission.pk] = set(read_ranges(submission.failed_indices))
            self.retried[submission.pk] = set()
            for retry in submission.retries.all():
                self.retried[submission.pk].update(read_ranges(retry.indices))

    def submission_of(self, job: Job) -> Submission | None:
        return array_of(job, self.submissions)

    def reason(self, verdict: Verdict, submission: Submission | None) -> LeftOut | None:
        """Return why a job cannot be retried by any user; None if it can."""
        if verdict.later_state:
            return (
                LeftOut.SUCCEEDED if verdict.later_state == JobState.COMPLETED else LeftOut.RETRIED
            )
        if verdict.job_id in self.in_batch:
            return LeftOut.IN_BATCH
        if submission is None:
            return self.foreign.reason(verdict.job)
        return self._of_array(submission, verdict.job)

    def _of_array(self, submission: Submission, job: Job) -> LeftOut | None:
        index = index_of(submission, job.job_id)
        stays_here = job.pk not in self.moving_jobs
        checks = {
            LeftOut.TEST: submission.is_test,
            LeftOut.DEBUG: submission.purpose == Purpose.DEBUG,
            LeftOut.IN_FLIGHT: index in self.retried[submission.pk],
            LeftOut.UNSETTLED: index not in self.failed[submission.pk],
            LeftOut.NOT_RUNNING: submission.request.state != RequestState.RUNNING,
            LeftOut.ACCEPTED: (submission.request_id, submission.position) in self.accepted,
            LeftOut.GIVEN_UP: (submission.request_id, submission.position, index) in self.given_up,
            LeftOut.CLUSTER: stays_here and not submission.cluster.submits,
        }
        return next((reason for reason, applies in checks.items() if applies), None)

    def obstacle_as_owner(
        self, verdict: Verdict, limits: RetryLimits, user: User | None
    ) -> LeftOut | None:
        """Return why this user cannot retry a job as its owner within these limits, or None."""
        if user is not None and not may_submit_as_owner(user, verdict.experiment_id):
            return LeftOut.FORBIDDEN
        if limits.attempts and self.foreign.attempt(verdict.job) >= limits.attempts:
            return LeftOut.ATTEMPTS
        return None

    def attempt(self, submission: Submission) -> int:
        """Return which attempt at its jobs an array is, from 1."""
        attempt = 1
        retried_pk = submission.retry_of_id
        while retried_pk:
            attempt += 1
            retried_pk = self.retried_pk_of.get(retried_pk)
        return attempt


def array_of(job: Job, arrays: Mapping[tuple[int, str], Sequence[Submission]]) -> Submission | None:
    """Return the array that a job belongs to, of those with its spool ID: IDs are recycled."""
    rows = arrays.get((job.cluster_id, job.spool_id), ())
    earlier = [
        submission
        for submission in rows
        if submission.sent_at and submission.sent_at - SKEW <= job.submitted_at
    ]
    return max(earlier, key=lambda submission: submission.pk, default=None)


def arrays_with_ids_of(jobs: Iterable[Job]) -> dict[tuple[int, str], list[Submission]]:
    """Return the arrays with the spool IDs of these jobs, by cluster and ID."""
    submissions = Submission.objects.filter(
        spool_id__in={job.spool_id for job in jobs}, state=SubmissionState.SENT
    )
    arrays: dict[tuple[int, str], list[Submission]] = defaultdict(list)
    submissions = (
        submissions.select_related("request__experiment", "cluster")
        .prefetch_related("retries")
        .defer("script")
    )
    for submission in submissions:
        arrays[submission.cluster_id, submission.spool_id].append(submission)
    return arrays


def reserved_indices(submission: Submission) -> set[int]:
    """Return the numbers of the jobs of an array that wait in a batch of retries.

    They are not retried in any other way.
    """
    waiting = RetryJob.objects.filter(state__in=IN_BATCH, submission=None).values("job")
    jobs = list(
        Job.objects.filter(
            cluster=submission.cluster_id, spool_id=submission.spool_id, pk__in=waiting
        )
    )
    arrays = arrays_with_ids_of(jobs)
    indices = set()
    for job in jobs:
        if array_of(job, arrays) == submission:
            index = index_of(submission, job.job_id)
            if index is not None:
                indices.add(index)
    return indices
