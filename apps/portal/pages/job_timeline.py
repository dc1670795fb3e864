"""The time axis of a job: queue time, phases, and outages of the services that it needed."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from apps.core.domain.quantities import round_duration
from apps.jobs.domain.phases.reports import ShownPhase
from apps.jobs.models import Job
from apps.portal.pages.time_axis import Axis, AxisMark, ticks_of
from apps.statusboard.domain.board.board import StateSpan
from apps.statusboard.domain.board.outages import OUTAGES, ServiceOutage

#: A longer queue time is cut, so that it takes at most about a third of the axis.
LONGEST_QUEUE = 0.5
#: Narrowest bar with a label, in percent.
LABELLED = 12.0


class Part(NamedTuple):
    """A phase, the time in the queue (kind `q`), or the whole run (kind `p2`)."""

    name: str
    started_at: datetime
    ended_at: datetime
    kind: str


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """An outage: its bar on the axis, its state, and the phases of the job that it met."""

    mark: AxisMark
    state: StateSpan
    phases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lane:
    """A service that had an outage while the job ran, or whose state is unknown."""

    outage: ServiceOutage
    spans: tuple[TimelineSpan, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """The bars of a job, and the lanes of its services; `up` are services without an outage."""

    bars: tuple[AxisMark, ...]
    lanes: tuple[Lane, ...]
    up: tuple[ServiceOutage, ...]
    ticks: tuple[AxisMark, ...]


def timeline_of(
    job: Job, phases: Sequence[ShownPhase], outages: Sequence[ServiceOutage]
) -> Timeline | None:
    """Return the time axis of a job; None if it never started."""
    if job.started_at is None:
        return None
    ran = max(job.ended_at - job.started_at, timedelta(seconds=1))
    start = max(job.submitted_at, job.started_at - LONGEST_QUEUE * ran)
    end = job.ended_at + ran / 20
    axis = Axis(min(start, job.started_at), end)

    parts = _parts(job, phases)
    bars = []
    for part in parts:
        mark = axis.span(max(part.started_at, axis.start), part.ended_at)
        seconds = (part.ended_at - part.started_at).total_seconds()
        title = f"{part.name} {round_duration(seconds)}"
        label = title if mark.width >= LABELLED else ""
        bars.append(AxisMark(mark.x, mark.width, label, title, part.kind))

    lanes = []
    up = []
    for outage in outages:
        if outage.overlap == "no":
            up.append(outage)
        else:
            lanes.append(Lane(outage, _spans(outage, axis, parts if phases else [])))
    return Timeline(tuple(bars), tuple(lanes), tuple(up), tuple(ticks_of(axis)))


def _parts(job: Job, phases: Sequence[ShownPhase]) -> list[Part]:
    """Return queue time and phases; without phases, queue time and run."""
    if phases:
        parts = []
        for phase in phases:
            started_at = job.submitted_at + phase.left / 100 * (job.ended_at - job.submitted_at)
            ended_at = started_at + timedelta(seconds=phase.seconds)
            parts.append(Part(phase.name, started_at, ended_at, phase.kind))
        return parts
    started_at = job.started_at or job.ended_at
    parts = [Part("ran", started_at, job.ended_at, "p2")]
    if started_at > job.submitted_at:
        parts.insert(0, Part("queued", job.submitted_at, started_at, "q"))
    return parts


def _spans(outage: ServiceOutage, axis: Axis, parts: Sequence[Part]) -> tuple[TimelineSpan, ...]:
    """Return the outages of a service on the axis, each with the phases of the job that it met."""
    spans = []
    for interval in outage.intervals:
        if interval.state not in OUTAGES and outage.overlap != "unknown":
            continue
        start = max(interval.started_at, axis.start)
        end = min(interval.ended_at or axis.end, axis.end)
        if end <= start:
            continue
        names = []
        for part in parts:
            if part.kind != "q" and part.started_at < end and part.ended_at > start:
                names.append(part.name)
        mark = axis.span(start, end, state=str(interval.state))
        spans.append(TimelineSpan(mark, interval, tuple(names)))
    return tuple(spans)
