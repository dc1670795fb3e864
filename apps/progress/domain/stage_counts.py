"""Progress of the stages of requests, from the hourly totals and the portal's submissions.

It never counts jobs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar

from django.db.models import Exists, OuterRef, Prefetch, QuerySet, prefetch_related_objects

from apps.accounts.models import User
from apps.jobs.domain.collection.outside_production import (
    JobsOutsideProduction,
    count_outside_production,
)
from apps.jobs.domain.totals.totals import Sums, stage_sums
from apps.jobs.enums import NONE
from apps.production.domain.priority.ranks import by_place, startable_requests
from apps.production.enums import IN_PRODUCTION
from apps.production.models import Attention, Request, Stage
from apps.submission.domain.arrays.submissions import count_completed_twice, count_retried_jobs

#: How many requests the home page shows.
MOST_REQUESTS = 3
#: The fields that it shows for each request.
_SHOWN = ("key", "title", "experiment", "deadline", "expected_start", "expected_end")

_Value = TypeVar("_Value")


@dataclass
class StageProgress:
    """The progress of a stage. `requested_jobs` is None if the request does not state them.

    `sums` count the attempts of all its jobs. `completed` and `ended` count each production job
    once; `twice` are those that completed, and whose retry did, too.
    """

    request: Request
    stage: str
    requested_jobs: int | None
    sums: Sums
    requested_stage: Stage | None = None
    outside_production: JobsOutsideProduction = field(default_factory=JobsOutsideProduction)
    twice: int = 0

    def find_in(self, by_stage: Mapping[int, _Value]) -> _Value | None:
        """Return the value of its requested stage by primary key; None without one."""
        if self.requested_stage is None:
            return None
        return by_stage.get(self.requested_stage.pk)

    @property
    def completed(self) -> int:
        return max(0, self.sums.completed - self.outside_production.completed - self.twice)

    @property
    def ended(self) -> int:
        return max(0, self.sums.jobs - self.sums.retried - self.outside_production.ended)


def progress_of(request: Request) -> list[StageProgress]:
    """Return the progress of each stage in order, then of stages that only jobs name."""
    # A request that was read with its stages keeps them.
    prefetch_related_objects(
        [request], Prefetch("stages", Stage.objects.order_by("position").select_related("location"))
    )
    return _progress([request], {request.pk: list(request.stages.all())})[request.pk]


def production_now(user: User) -> list[StageProgress]:
    """Return the progress by stage of requests that a user can see.

    Requests in production that need attention come first, then the others and the queue.
    """
    visible = Request.objects.visible_to(user)
    needs_attention = Exists(Attention.objects.filter(request=OuterRef("pk")))
    started = visible.filter(state__in=sorted(IN_PRODUCTION)).order_by(
        needs_attention.desc(), *by_place()
    )
    requests = list(started.only(*_SHOWN)[:MOST_REQUESTS])
    requests += (
        startable_requests().filter(pk__in=visible).only(*_SHOWN)[: MOST_REQUESTS - len(requests)]
    )
    prefetch_related_objects(requests, "attention")
    stages = Stage.objects.only("request", "position", "name", "jobs")
    return list(chain.from_iterable(progress_of_many(requests, stages).values()))


def progress_of_many(
    requests: list[Request], stages: QuerySet[Stage] | None = None
) -> dict[int, list[StageProgress]]:
    """Return the progress of each request by primary key, in a fixed number of queries.

    `stages` limits the fields to read of the stages.
    """
    stages_by_request: dict[int, list[Stage]] = {request.pk: [] for request in requests}
    rows = Stage.objects.all() if stages is None else stages
    for stage in rows.filter(request__in=requests).order_by("request", "position"):
        stages_by_request[stage.request_id].append(stage)
    return _progress(requests, stages_by_request)


def _progress(
    requests: list[Request], stages: dict[int, list[Stage]]
) -> dict[int, list[StageProgress]]:
    totals = stage_sums(requests)
    outside = count_outside_production(requests)
    retried_by_stage = count_retried_jobs([request.pk for request in requests])
    progress = {}
    for request in requests:
        left = totals[request.pk]
        rows = []
        for stage in stages[request.pk]:
            rows.append(
                StageProgress(
                    request,
                    stage.name,
                    stage.jobs,
                    left.pop(stage.name.casefold(), Sums(stage.name)),
                    stage,
                )
            )
        rows += [StageProgress(request, sums.name, None, sums) for sums in left.values()]
        for stage_progress in rows:
            stage_progress.sums.query = {
                "request": request.key,
                "stage": stage_progress.stage or NONE,
            }
            stage_progress.sums.retried += (
                retried_by_stage.get((request.pk, stage_progress.requested_stage.position), 0)
                if stage_progress.requested_stage
                else 0
            )
            key = (request.key, stage_progress.stage.casefold())
            stage_progress.outside_production = outside.get(key, JobsOutsideProduction())
        progress[request.pk] = rows
    _note_completed_twice(progress, retried_by_stage)
    return progress


def _note_completed_twice(
    progress: Mapping[int, list[StageProgress]], retried_by_stage: Mapping[tuple[int, int], int]
) -> None:
    """Set `twice` of the stages with retried jobs. No query is needed if there are none."""
    retried = {}
    for pk, rows in progress.items():
        for stage_progress in rows:
            if stage_progress.requested_stage and stage_progress.completed:
                key = pk, stage_progress.requested_stage.position
                if key in retried_by_stage:
                    retried[key] = stage_progress
    if not retried:
        return
    twice = count_completed_twice(
        {key: stage_progress.completed for key, stage_progress in retried.items()}
    )
    for key, stage_progress in retried.items():
        stage_progress.twice = twice[key]
