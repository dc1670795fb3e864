"""Events that stages did not produce: of missing jobs, and of jobs that produce only a part."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from apps.jobs.domain.collection.outside_production import (
    JobsOutsideProduction,
    count_outside_production,
)
from apps.jobs.domain.totals.totals import stage_sums
from apps.production.enums import RequestState
from apps.production.models import Request, Stage, StageAcceptance, StageCounts
from apps.submission.domain.arrays.submissions import EventsInPart, events_in_part
from apps.submission.enums import Purpose
from apps.submission.models import Submission

#: In these states, all jobs of all stages have finished.
_JOBS_FINISHED = {
    RequestState.COMPLETING,
    RequestState.DATA_QUALITY,
    RequestState.DONE,
    RequestState.DONE_PARTIAL,
}


@dataclass(frozen=True)
class StageEvents:
    """How many events of a stage were requested, and about how many its jobs did not produce.

    `jobs_in_part` completed with a part of their events. `is_finished`: no more jobs will run.
    """

    stage: Stage
    requested: int
    not_produced: int
    jobs_in_part: int
    is_finished: bool

    @property
    def produced(self) -> int | None:
        """About how many events were produced; None while jobs may still produce some."""
        if not self.is_finished:
            return None
        return self.requested - self.not_produced

    @property
    def summary(self) -> str:
        return (
            f"{self.stage.name}: about {self.not_produced:,} of {self.requested:,} events were not "
            "produced"
        )


def events_in_part_of(requests: Iterable[Request]) -> dict[int, EventsInPart]:
    """Return the jobs that completed with a part of their events, by primary key of the stage.

    Only stages with such arrays are included. At most two queries.
    """
    began = [request.pk for request in requests if request.work_began_at is not None]
    if not began:
        return {}

    arrays = Submission.objects.filter(
        request__in=began, purpose=Purpose.PRODUCTION, changes__has_key="events_part"
    )
    arrays_at: dict[tuple[int, int], list[Submission]] = {}
    for array in arrays.defer("script"):
        arrays_at.setdefault((array.request_id, array.position), []).append(array)
    if not arrays_at:
        return {}

    in_part = {}
    for stage in Stage.objects.filter(
        request__in={request for request, _ in arrays_at}
    ).select_related("request"):
        place = (stage.request_id, stage.position)
        if place in arrays_at:
            in_part[stage.pk] = events_in_part(stage, arrays_at[place])
    return in_part


def missing_jobs_of(
    requests: Iterable[Request], accepted: Mapping[int, StageAcceptance]
) -> dict[int, int]:
    """Return how many jobs of each stage did not complete, by primary key of the stage.

    These are stages of requests all of whose jobs have finished, such as those whose jobs were
    submitted by hand. Stages that were accepted as is, that have no number of jobs, or of which the
    portal knows no job, are left out. At most four queries.
    """
    finished = {request.pk: request for request in requests if request.state in _JOBS_FINISHED}
    if not finished:
        return {}

    sums_of_request = stage_sums(finished.values())
    outside_production = count_outside_production(list(finished.values()))
    missing_jobs = {}
    stages = Stage.objects.filter(request__in=finished, jobs__gt=0)
    for stage in stages.exclude(pk__in=accepted):
        name = stage.name.casefold()
        sums = sums_of_request[stage.request_id].get(name)
        if sums is None:
            continue
        key = finished[stage.request_id].key
        outside = outside_production.get((key, name), JobsOutsideProduction())
        missing = (stage.jobs or 0) - max(0, sums.completed - outside.completed)
        ended = sums.jobs - sums.retried - outside.ended
        if missing > 0 and ended > 0:
            missing_jobs[stage.pk] = missing
    return missing_jobs


def events_not_produced(
    requests: Iterable[Request], accepted: Mapping[int, StageAcceptance]
) -> dict[int, list[StageEvents]]:
    """Return the stages that lack events, in order, by primary key of the request.

    These are stages with missing jobs, accepted or not, and stages with jobs that completed with a
    part of their events. Stages without a number of events are left out. `accepted` has the
    acceptances of the requests by primary key of the stage. At most eight queries.
    """
    requests_by_pk = {request.pk: request for request in requests}
    in_part = events_in_part_of(requests_by_pk.values())
    missing_jobs = missing_jobs_of(requests_by_pk.values(), accepted)
    stages_by_request: dict[int, list[StageEvents]] = {}
    if not in_part and not accepted and not missing_jobs:
        return stages_by_request

    written = _written_events(missing_jobs)
    stages = Stage.objects.filter(pk__in={*in_part, *accepted, *missing_jobs})
    for stage in stages.order_by("request", "position"):
        acceptance = accepted.get(stage.pk)
        state = requests_by_pk[stage.request_id].state
        is_finished = acceptance is not None or state in _JOBS_FINISHED
        events = count_events(
            stage,
            in_part.get(stage.pk, EventsInPart()),
            acceptance,
            jobs_missing=missing_jobs.get(stage.pk, 0),
            written=written.get(stage.pk),
            is_finished=is_finished,
        )
        if events.not_produced:
            stages_by_request.setdefault(stage.request_id, []).append(events)
    return stages_by_request


def _written_events(stages: Collection[int]) -> dict[int, int]:
    """Return how many events jobs reported that they wrote, by primary key of the stage."""
    if not stages:
        return {}
    written = {}
    for counts in StageCounts.objects.filter(stage__in=stages):
        if counts.events_out is not None:
            written[counts.stage_id] = counts.events_out
    return written


def count_events(
    stage: Stage,
    in_part: EventsInPart,
    acceptance: StageAcceptance | None,
    *,
    jobs_missing: int = 0,
    written: int | None = None,
    is_finished: bool = True,
) -> StageEvents:
    """Return how many events of a stage were not produced, at most as many as were requested.

    Missing jobs lack their share of the events of the stage: those of an acceptance, or else
    `jobs_missing`. The latter lack no more than the requested events less the `written` ones, as
    other jobs may have produced them.
    """
    requested = stage.events or 0
    missing = in_part.events_missing
    if acceptance is not None and acceptance.jobs_asked:
        missing += round(requested * acceptance.jobs_missing / acceptance.jobs_asked)
    elif jobs_missing and stage.jobs:
        share = round(requested * jobs_missing / stage.jobs)
        if written is not None:
            share = min(share, max(0, requested - written))
        missing += share
    return StageEvents(stage, requested, min(missing, requested), in_part.jobs, is_finished)
