"""Judge the jobs of stages as they end: let the rest start, or put a broken stage on hold."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet, Sum

from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import JobState
from apps.diagnosis.enums import Category, VerdictKind
from apps.diagnosis.models import FailureGroup
from apps.jobs.domain.collection.proof import SKEW
from apps.jobs.enums import INTERRUPTED_STATES
from apps.jobs.models import Job
from apps.production.domain.approvals.inbox import responsible_users
from apps.production.domain.holds import hold_stage
from apps.production.enums import RequestState
from apps.production.models import Stage
from apps.submission.domain.arrays.submissions import index_of
from apps.submission.domain.arrays.trials import VERDICT_WITHIN
from apps.submission.domain.scouts.ratio_test import RatioFinding, RatioTest
from apps.submission.enums import Purpose, ScoutState, SubmissionState
from apps.submission.models import StageScouts, Submission

#: Maximum number of jobs to read as evidence against a stage: the newest.
NEWEST = 1_000
#: States and causes that say nothing about the stage: the next jobs may well succeed.
_TELL_NOTHING = INTERRUPTED_STATES | {JobState.NODE_FAIL, JobState.BOOT_FAIL}
_OF_OTHERS = {VerdictKind.SERVICE, VerdictKind.USER}


@dataclass
class Ends:
    """The jobs of a stage up to the last one that ended, in the order of their numbers.

    `failures` says of each whether it failed, and is None for one that has not ended; jobs that
    are no evidence about the stage are left out. `groups` counts the failure groups of failed jobs.
    `waiting` failed jobs have no verdict yet.
    """

    failures: list[bool | None] = field(default_factory=list)
    groups: Counter[int] = field(default_factory=Counter)
    waiting: int = 0

    @property
    def failed(self) -> int:
        return self.failures.count(True)

    @property
    def completed(self) -> int:
        return self.failures.count(False)


def watch_stages(*, cluster: Cluster, at: datetime) -> None:
    """Judge the stages of running requests on a cluster of which more jobs have ended."""
    watched = StageScouts.objects.filter(
        state__in=(ScoutState.SCOUTING, ScoutState.SOUND),
        request__assignment__cluster=cluster,
        request__state=RequestState.RUNNING,
    )
    ended = _jobs_ended(watched.values("request"))
    rows = watched.order_by("pk").values_list(
        "pk", "request", "position", "ended", "is_waiting", named=True
    )
    for row in list(rows):
        has_news = ended.get((row.request, row.position), 0) != row.ended
        if row.is_waiting or has_news:
            _judge(row.pk, at)


def _production(**filters: Any) -> QuerySet[Submission]:
    return Submission.objects.filter(
        purpose=Purpose.PRODUCTION, retry_of=None, state=SubmissionState.SENT, **filters
    )


def _jobs_ended(requests: Any) -> dict[tuple[int, int], int]:
    """Return how many jobs ended, by primary key of the request and position of the stage."""
    sums = _production(request__in=requests).order_by().values_list("request", "position")
    jobs_ended = {}
    for request_pk, position, jobs in sums.annotate(Sum("ended")):
        jobs_ended[request_pk, position] = jobs
    return jobs_ended


@transaction.atomic
def _judge(pk: int, at: datetime) -> None:
    scouts = (
        StageScouts.objects.select_for_update(of=("self",)).select_related("request").get(pk=pk)
    )
    stages = Stage.objects.select_related("request")
    stage = stages.filter(request=scouts.request_id, position=scouts.position).first()
    if stage is None or scouts.state == ScoutState.BROKEN:
        return
    submissions = list(
        _production(request=scouts.request_id, position=scouts.position)
        .defer("script")
        .order_by("first")
    )
    ends = ends_of(_last_arrays(submissions), at)
    scouts.ended = sum(submission.ended for submission in submissions)
    scouts.is_waiting = ends.waiting > 0
    scouts.failed = ends.failed
    scouts.completed = ends.completed

    test = RatioTest(
        usual=scouts.usual_rate,
        jobs=stage.jobs or 0,
        false_stop=settings.SCOUT_FALSE_STOP,
        missed=settings.SCOUT_MISSED,
    )
    finding = test.find(ends.failures)
    is_scouting = scouts.state == ScoutState.SCOUTING
    if finding is RatioFinding.BROKEN:
        _stop(scouts, stage, ends, at)
    elif is_scouting and finding is RatioFinding.SOUND:
        scouts.state = ScoutState.SOUND
        scouts.judged_at = at
    elif is_scouting and scouts.ended >= scouts.allowed and not scouts.is_waiting:
        scouts.allowed = min(stage.jobs or 0, 2 * scouts.allowed)
    scouts.save()


def _last_arrays(submissions: Sequence[Submission]) -> list[Submission]:
    """Return the last array with jobs that ended, and those before it with `NEWEST` jobs.

    `submissions` are in the order of their jobs.
    """
    arrays: list[Submission] = []
    jobs_before = 0
    for submission in reversed(submissions):
        if not arrays and not submission.ended:
            continue
        if jobs_before >= NEWEST:
            break
        if arrays:
            jobs_before += submission.tasks
        arrays.append(submission)
    return arrays


def ends_of(submissions: Sequence[Submission], at: datetime) -> Ends:
    """Return the evidence of the last ended jobs of a stage and of those submitted with them.

    Jobs that were interrupted, or failed because of a service or their site, are no evidence.
    """
    submission_of = {}
    for submission in submissions:
        submission_of[submission.cluster_id, submission.spool_id] = submission
    ends = Ends()
    failures: dict[int, bool | None] = {}
    silent = set()
    for job in _newest_jobs(submissions, at):
        index = index_of(submission_of[job.cluster_id, job.spool_id], job.job_id)
        if index is None or index in failures or index in silent:
            continue
        if job.tells_nothing:
            silent.add(index)
        elif job.has_failed and job.verdict is None and job.ended_at > at - VERDICT_WITHIN:
            failures[index] = None
            ends.waiting += 1
        else:
            failures[index] = job.has_failed
            if job.group_pk is not None:
                ends.groups[job.group_pk] += 1
    last = max(failures, default=-1)
    for index in range(max(0, last + 1 - NEWEST), last + 1):
        if index not in silent:
            ends.failures.append(failures.get(index))
    return ends


class _EndedJob(NamedTuple):
    cluster_id: int
    spool_id: str
    job_id: str
    state: str
    ended_at: datetime
    verdict: str | None
    category: str | None
    group_pk: int | None

    @property
    def has_failed(self) -> bool:
        return self.state != JobState.COMPLETED

    @property
    def tells_nothing(self) -> bool:
        is_of_others = self.verdict in _OF_OTHERS or self.category == Category.SITE
        return self.state in _TELL_NOTHING or (self.has_failed and is_of_others)


def _newest_jobs(submissions: Sequence[Submission], at: datetime) -> list[_EndedJob]:
    """Return the jobs of submissions that ended last, newest first."""
    spool_ids: dict[int, list[str]] = {}
    sent = []
    for submission in submissions:
        spool_ids.setdefault(submission.cluster_id, []).append(submission.spool_id)
        if submission.sent_at:
            sent.append(submission.sent_at)
    there = Q(pk=None)
    for cluster_id, of_cluster in spool_ids.items():
        there |= Q(cluster=cluster_id, spool_id__in=of_cluster)
    jobs = Job.objects.filter(there, submitted_at__gte=min(sent, default=at) - SKEW)
    rows = jobs.order_by("-ended_at", "-pk").values_list(
        *("cluster", "spool_id", "job_id", "state", "ended_at"),
        *("verdict__verdict", "verdict__category", "verdict__group"),
    )
    return [_EndedJob(*row) for row in rows[:NEWEST]]


def _stop(scouts: StageScouts, stage: Stage, ends: Ends, at: datetime) -> None:
    """Put a stage on hold; if it is already, look again later."""
    largest_group_pks = [group_pk for group_pk, _ in ends.groups.most_common(1)]
    scouts.group = FailureGroup.objects.filter(pk__in=largest_group_pks).first()
    cause = f" Most of them: {scouts.group}." if scouts.group else ""
    reason = (
        f"{scouts.failed} of the last {scouts.failed + scouts.completed} jobs failed, usually "
        f"{round(100 * scouts.usual_rate, 1):g} %.{cause} Lift the hold to go on, or cancel the "
        "jobs."
    )
    people = responsible_users(RequestState.ON_HOLD, stage.request.experiment_id)
    hold = hold_stage(stage=stage, at=at, reason=reason, people=people)
    if hold is None:
        scouts.is_waiting = True
        return
    scouts.hold = hold
    scouts.state = ScoutState.BROKEN
    scouts.judged_at = at
