"""Judge the jobs of stages as they end: let the rest start, or put a broken stage on hold."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

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
from apps.submission.domain.scouts.ratio_test import Finding
from apps.submission.domain.scouts.scouts import ratio_test_of
from apps.submission.enums import Purpose, ScoutState, SubmissionState
from apps.submission.models import StageScouts, Submission

#: How long the verdict on a failed job is awaited.
VERDICT_WITHIN = timedelta(minutes=15)
#: Evidence against a stage is sought in so many jobs that ended last.
NEWEST = 300
#: Causes that say nothing about the stage: the next jobs may well succeed.
_OF_HOSTS = {JobState.NODE_FAIL, JobState.BOOT_FAIL}
_OF_OTHERS = {VerdictKind.SERVICE, VerdictKind.USER}


@dataclass
class Ends:
    """The jobs of a stage that ended, in the order of their ends.

    `failures` says of each job that tells something of the stage whether it failed; `groups`
    counts the failure groups of those that did. `waiting` failed jobs have no verdict yet.
    """

    failures: list[bool] = field(default_factory=list)
    groups: Counter[int] = field(default_factory=Counter)
    waiting: int = 0


def watch_stages(*, cluster: Cluster, at: datetime) -> None:
    """Judge the stages of running requests on a cluster of which more jobs have ended."""
    watched = StageScouts.objects.filter(
        state__in=(ScoutState.SCOUTING, ScoutState.SOUND),
        request__assignment__cluster=cluster,
        request__state=RequestState.RUNNING,
    )
    ended = _jobs_ended(watched.values("request"))
    for pk, request, position, judged, is_waiting in list(
        watched.order_by("pk").values_list("pk", "request", "position", "ended", "is_waiting")
    ):
        if is_waiting or ended.get((request, position), 0) != judged:
            _judge(pk, at)


def _production(**filters: Any) -> QuerySet[Submission]:
    return Submission.objects.filter(
        purpose=Purpose.PRODUCTION, retry_of=None, state=SubmissionState.SENT, **filters
    )


def _jobs_ended(requests: Any) -> dict[tuple[int, int], int]:
    sums = _production(request__in=requests).order_by().values_list("request", "position")
    return {(row[0], row[1]): row[2] for row in sums.annotate(Sum("ended"))}


@transaction.atomic
def _judge(pk: int, at: datetime) -> None:
    row = StageScouts.objects.select_for_update(of=("self",)).select_related("request").get(pk=pk)
    stages = Stage.objects.select_related("request")
    stage = stages.filter(request=row.request_id, position=row.position).first()
    if stage is None or row.state == ScoutState.BROKEN:
        return
    submissions = list(_production(request=row.request_id, position=row.position))
    ends = ends_of(submissions, at, most=max(NEWEST, row.allowed))
    row.ended = sum(submission.ended for submission in submissions)
    row.is_waiting = ends.waiting > 0
    row.failed = sum(ends.failures)
    row.completed = len(ends.failures) - row.failed

    finding = ratio_test_of(row, stage.jobs or 0).find(ends.failures)
    is_scouting = row.state == ScoutState.SCOUTING
    if finding is Finding.BROKEN:
        _stop(row, stage, ends, at)
    elif is_scouting and finding is Finding.SOUND:
        row.state = ScoutState.SOUND
        row.judged_at = at
    elif is_scouting and row.ended >= row.allowed and not row.is_waiting:
        row.allowed = min(stage.jobs or 0, 2 * row.allowed)
    row.save()


def ends_of(submissions: Sequence[Submission], at: datetime, *, most: int) -> Ends:
    """Return what the last `most` jobs of these submissions that ended tell of their stage.

    Jobs that were interrupted, or failed because of a service or their site, tell nothing.
    """
    spool_ids: dict[int, list[str]] = {}
    for submission in submissions:
        spool_ids.setdefault(submission.cluster_id, []).append(submission.spool_id)
    there = Q(pk=None)
    for cluster, of_cluster in spool_ids.items():
        there |= Q(cluster=cluster, spool_id__in=of_cluster)
    since = min(
        (submission.sent_at for submission in submissions if submission.sent_at), default=at
    )
    jobs = (
        Job.objects.filter(there, submitted_at__gte=since - SKEW)
        .exclude(state__in=INTERRUPTED_STATES | _OF_HOSTS)
        .order_by("-ended_at", "-pk")
        .values_list("state", "ended_at", "verdict__verdict", "verdict__category", "verdict__group")
    )
    ends = Ends()
    newest: list[tuple[str, datetime, str | None, str | None, int | None]] = list(jobs[:most])
    for state, ended_at, verdict, category, group in reversed(newest):
        if state == JobState.COMPLETED:
            ends.failures.append(False)
        elif verdict is None and ended_at > at - VERDICT_WITHIN:
            ends.waiting += 1
        elif verdict not in _OF_OTHERS and category != Category.SITE:
            ends.failures.append(True)
            if group is not None:
                ends.groups[group] += 1
    return ends


def _stop(row: StageScouts, stage: Stage, ends: Ends, at: datetime) -> None:
    """Put a stage on hold; if it is already, look again later."""
    largest_group = [group for group, _ in ends.groups.most_common(1)]
    row.group = FailureGroup.objects.filter(pk__in=largest_group).first()
    cause = f" Most of them: {row.group}." if row.group else ""
    reason = (
        f"{row.failed} of the last {row.failed + row.completed} jobs failed, usually "
        f"{100 * row.usual_rate:.0f} %.{cause} Lift the hold to go on, or cancel the jobs."
    )
    people = responsible_users(RequestState.ON_HOLD, stage.request.experiment_id)
    hold = hold_stage(stage=stage, at=at, reason=reason, people=people)
    if hold is None:
        row.is_waiting = True
        return
    row.hold = hold
    row.state = ScoutState.BROKEN
    row.judged_at = at
