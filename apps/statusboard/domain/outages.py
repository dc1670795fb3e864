"""Reading the status board: states now, history by day, what was out during a job. Constant numbers of queries."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from apps.statusboard.domain.board import Stretch
from apps.statusboard.domain.timeline import Span, clip
from apps.statusboard.enums import Cause, State, worst
from apps.statusboard.models import Service, StateInterval

Answer = Literal["yes", "no", "unknown"]


@dataclass(frozen=True)
class ServiceOutage:
    """Whether a service was out at some time while a job ran, and its stretches then, each cut to that time.

    `state` is the worst of them, so that a page can tell degraded ("partly") from down.
    """

    service: Service
    answer: Answer
    state: State
    intervals: tuple[Stretch, ...]


def outages_during(
    service_ids: Collection[int], started_at: datetime, ended_at: datetime | None, at: datetime
) -> list[ServiceOutage]:
    """Return, for each service by name, whether it was out during [started_at, ended_at), or until `at` if not ended.

    Any moment down, degraded or in maintenance: yes. Else any moment unknown: unknown. Else no. Touching ends have no
    moment in common; a job without length is asked for the moment of its start.
    """
    end = max(ended_at or at, started_at)
    asked = Span(started_at, end)
    wide = end if end > started_at else started_at + timedelta(microseconds=1)
    rows = StateInterval.objects.filter(service__in=service_ids).overlapping(started_at, wide)
    by_service: dict[int, list[Stretch]] = defaultdict(list)
    for row in rows.select_related("incident").order_by("started_at"):
        if part := clip(Span(row.started_at, row.ended_at), asked):
            by_service[row.service_id].append(
                Stretch(State(row.state), part.started_at, part.ended_at, Cause(row.cause), row.incident)
            )
    services = Service.objects.filter(pk__in=service_ids).order_by("name", "pk")
    return [_outage(service, by_service[service.pk]) for service in services]


def _outage(service: Service, stretches: list[Stretch]) -> ServiceOutage:
    state = worst(stretch.state for stretch in stretches)
    answer: Answer = "no" if state == State.UP else "unknown" if state == State.UNKNOWN else "yes"
    return ServiceOutage(service, answer, state, tuple(stretches))
