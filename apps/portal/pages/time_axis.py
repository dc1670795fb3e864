"""A time axis in percent, for the lanes of incidents and jobs."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

#: Distances between the ticks of a time axis.
_TICKS = tuple(
    timedelta(minutes=minutes)
    for minutes in (5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10_080)
)


@dataclass(frozen=True)
class AxisMark:
    """A mark on the axis: position and width in percent. `width` is 0 for a point in time."""

    x: float
    width: float = 0
    label: str = ""
    title: str = ""
    state: str = ""


@dataclass(frozen=True)
class Axis:
    """The time from `start` to `end`; positions on it are in percent."""

    start: datetime
    end: datetime

    def place(self, at: datetime) -> float:
        share = (at - self.start) / (self.end - self.start)
        return round(100 * min(1.0, max(0.0, share)), 2)

    def span(self, start: datetime, end: datetime | None, **more: str) -> AxisMark:
        first = self.place(start)
        return AxisMark(first, round(max(self.place(end or self.end) - first, 0.3), 2), **more)


def ticks_of(axis: Axis) -> list[AxisMark]:
    """Return marks at round times, at most seven."""
    length = axis.end - axis.start
    step = next((step for step in _TICKS if length / step <= 7), _TICKS[-1])
    start = timezone.localtime(axis.start)
    midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
    first = midnight + ((start - midnight) // step + 1) * step
    times = [first + number * step for number in range(int((axis.end - first) / step) + 1)]
    days = step >= timedelta(days=1)

    marks = []
    for time in times:
        label = f"{time:%a} {time.day}" if days else f"{time:%H:%M}"
        marks.append(AxisMark(axis.place(time), label=label))
    return marks
