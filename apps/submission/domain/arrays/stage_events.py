"""Events that stages did not produce: those of missing jobs, and of jobs with a part of theirs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from apps.production.enums import RequestState
from apps.production.models import Request, Stage, StageAcceptance
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
    """Return what jobs lack that completed with a part of their events, by key of the stage.

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
    for stage in Stage.objects.filter(request__in={request for request, _ in arrays_at}):
        place = (stage.request_id, stage.position)
        if place in arrays_at:
            in_part[stage.pk] = events_in_part(stage, arrays_at[place])
    return in_part


def events_not_produced(
    requests: Iterable[Request], accepted: Mapping[int, StageAcceptance]
) -> dict[int, list[StageEvents]]:
    """Return the stages that lack events, in order, by primary key of the request.

    These are accepted stages with missing jobs, and stages with jobs that completed with a part of
    their events. Stages without a number of events are left out. `accepted` has the acceptances of
    the requests by primary key of the stage. At most three queries.
    """
    requests_by_pk = {request.pk: request for request in requests}
    in_part = events_in_part_of(requests_by_pk.values())
    stages_by_request: dict[int, list[StageEvents]] = {}
    if not in_part and not accepted:
        return stages_by_request

    stages = Stage.objects.filter(pk__in={*in_part, *accepted}).order_by("request", "position")
    for stage in stages:
        acceptance = accepted.get(stage.pk)
        state = requests_by_pk[stage.request_id].state
        is_finished = acceptance is not None or state in _JOBS_FINISHED
        events = count_events(
            stage, in_part.get(stage.pk, EventsInPart()), acceptance, is_finished=is_finished
        )
        if events.not_produced:
            stages_by_request.setdefault(stage.request_id, []).append(events)
    return stages_by_request


def count_events(
    stage: Stage,
    in_part: EventsInPart,
    acceptance: StageAcceptance | None,
    *,
    is_finished: bool = True,
) -> StageEvents:
    """Return how many events of a stage were not produced, at most as many as were requested.

    Missing jobs lack their share of the events of the stage.
    """
    requested = stage.events or 0
    missing = in_part.events_missing
    if acceptance is not None and acceptance.jobs_asked:
        missing += round(requested * acceptance.jobs_missing / acceptance.jobs_asked)
    return StageEvents(stage, requested, min(missing, requested), in_part.jobs, is_finished)
