"""Larger limits to propose for stages whose jobs hit their time or memory limit."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import urlencode

from django.db.models import OuterRef, Subquery
from django.urls import reverse

from apps.accounts.models import User
from apps.clusters.schedulers.base import JobState
from apps.core.domain.quantities import format_duration, format_size, round_duration, round_size
from apps.diagnosis.models import FailureGroup, Verdict
from apps.jobs.models import Job
from apps.production.enums import CLOSED
from apps.production.models import Request, Stage, StageHistory

#: A proposed limit is this much larger than the limit that jobs hit.
_MORE_TIME = 1.5
_MORE_MEMORY = 4 / 3
#: A limit of jobs that differs from their request's by at most this fraction is the same in
#: another unit: whoever submits 3 GB by hand may write 3 GiB, which is 7.4 % more.
_SAME = 0.08
_HOUR = 3600
_GB = 10**9


@dataclass(frozen=True)
class LimitProposal:
    """A larger limit for a stage: the advice, the label of the button, and the URL of a comment.

    The comment on the stage's field is written in advance; the user sends it.
    """

    advice: str
    label: str
    url: str


def propose_limits(groups: Iterable[FailureGroup], user: User) -> dict[int, LimitProposal]:
    """Return a proposal by primary key of each group whose newest job hit a limit of its stage.

    It takes four queries.
    """
    newest = Verdict.objects.filter(group=OuterRef("pk")).order_by("-ended_at", "-pk")
    with_job = FailureGroup.objects.filter(pk__in=[group.pk for group in groups]).values_list(
        "pk", Subquery(newest.visible_to(user).values("job")[:1])
    )
    job_by_group = dict(with_job)
    jobs = Job.objects.in_bulk([pk for pk in job_by_group.values() if pk])
    limited = {}
    for group_pk, job_pk in job_by_group.items():
        job = jobs.get(job_pk)
        if job and job.request_id and job.stage and _limit_of(job):
            limited[group_pk] = job
    requests = [job.request_id for job in limited.values() if job.request_id]
    open_requests = Request.objects.visible_to(user).exclude(state__in=CLOSED)
    stages = {}
    rows = Stage.objects.filter(request__in=open_requests.filter(pk__in=requests))
    for stage in rows.select_related("request"):
        stages[stage.request_id, stage.name.casefold()] = stage
    histories = {}
    for history in StageHistory.objects.filter(request__in=requests):
        histories[history.request_id, history.name] = history

    proposals = {}
    for group_pk, job in limited.items():
        key = (job.request_id, job.stage.casefold())
        if key in stages:
            proposals[group_pk] = _proposal(job, stages[key], histories.get(key))
    return proposals


def _limit_of(job: Job) -> int | None:
    """Return the limit that a job hit, in seconds or bytes; None if it hit none."""
    if job.state == JobState.TIMEOUT:
        return job.time_limit_seconds
    if job.state == JobState.OUT_OF_MEMORY:
        return job.requested_memory_bytes
    return None


def _proposal(job: Job, stage: Stage, history: StageHistory | None) -> LimitProposal:
    field = "wall_seconds" if job.state == JobState.TIMEOUT else "memory_bytes"
    requested = getattr(stage, field)
    limit = _limit_of(job) or 0
    if requested and abs(limit - requested) <= _SAME * requested:
        limit = requested
    if job.state == JobState.TIMEOUT:
        used = history.wall_seconds_99 if history else None
        value = math.ceil(max(limit * _MORE_TIME, used or 0) / _HOUR) * _HOUR
        proposed = format_duration(value)
        rounded: Callable[[float], str] = round_duration
    else:
        used = history.memory_bytes_99 if history else None
        value = math.ceil(max(limit * _MORE_MEMORY, used or 0) / _GB) * _GB
        proposed = format_size(value)
        rounded = round_size

    was = rounded(limit)
    evidence = f"jobs were killed at {was}"
    if requested and requested != limit:
        evidence += f", the request says {rounded(requested)}"
    if used is not None:
        evidence += f"; 99 % of the completed jobs used up to {rounded(used)}"
    request = stage.request
    comment = {
        "about": f"stages.{stage.position}.{field}",
        "text": f"Jobs of {stage.name} hit their limit of {was}. I propose {proposed}.",
    }
    if used is not None:
        comment["text"] += f" 99 % of the completed jobs used up to {rounded(used)}."
    address = reverse("production:comment", args=[request.key])
    return LimitProposal(
        f"request {proposed} for {stage.name} of {request.key}: {evidence}",
        f"Propose {proposed}…",
        f"{address}?{urlencode(comment)}",
    )
