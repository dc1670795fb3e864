"""The forecast of a request.

For an approved request, `progress` stores it; all pages and the API show it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple, Self

from django.utils.dateparse import parse_datetime

from apps.production.enums import SIGNED, RequestedPriority, RequestState
from apps.production.models import Request

#: An end later than this is shown as unknown.
FAR_DAYS = 3650
#: The end of the basis of an expected end that a hold prevents.
ON_HOLD = "is on hold"
#: The beginning of the basis of an end that is the one of an earlier stage.
NOT_BEFORE = "not before "
#: A basis that begins with this says that a date is unknown, and why.
UNKNOWN = "Unknown"
#: What a forecast may assume. The texts follow a date.
TEST_PASSES = "if its test passes today"
STARTED_TODAY = "if it started today"
IF_APPROVED = "if approved now"
APPROVED_AND_STARTED = "if approved now and started today"


class Days(NamedTuple):
    """The earliest, likeliest and latest day of a start or an end."""

    early: date
    likely: date
    late: date

    @classmethod
    def exactly(cls, day: date) -> Self:
        """Return a day that is certain."""
        return cls(day, day, day)


@dataclass(frozen=True)
class Expected:
    """When a stage is expected to end, and what that is based on.

    Without a time, `basis` is the reason. The end lies between `early` and `late`; an end by pace
    has no interval, so both equal `at`.
    """

    at: datetime | None
    basis: str
    early: datetime | None = None
    late: datetime | None = None

    @property
    def is_wide(self) -> bool:
        return self.early != self.late

    @property
    def is_held(self) -> bool:
        """Whether there is no end because of a hold."""
        return self.at is None and self.basis.endswith(ON_HOLD)

    def as_data(self) -> list[str | None]:
        """Return the expected end for JSON: three times, then the basis."""
        data = []
        for moment in (self.at, self.early, self.late):
            data.append(moment.isoformat() if moment else None)
        return [*data, self.basis]

    @classmethod
    def from_data(cls, data: list[str | None]) -> "Expected":
        at, early, late = (parse_datetime(text) if text else None for text in data[:3])
        return cls(at, data[3] or "", early, late)


@dataclass(frozen=True)
class Forecast:
    """When a request starts and ends; None if unknown or past.

    `basis` is what the forecast is based on, or why it is unknown. `at` is when it was computed.
    `stages` has the ends of the stages of a running request by name, `part_done` the fraction of
    its jobs that have completed, 0 to 1. The forecast holds for a priority class and under an
    `assumption`.
    """

    start: Days | None = None
    end: Days | None = None
    basis: str = ""
    at: datetime | None = None
    stages: Mapping[str, Expected] = field(default_factory=dict)
    part_done: float | None = None
    priority_class: str = ""
    assumption: str = ""

    @property
    def is_wide(self) -> bool:
        return self.end is not None and self.end.early != self.end.late

    @property
    def explanation(self) -> str:
        """The range of its end, if it is wide, and its basis."""
        if self.end is None or not self.is_wide:
            return self.basis
        ends = f"Likely end, between {self.end.early:%-d %b %Y} and {self.end.late:%-d %b %Y}."
        return f"{ends} {self.basis}".strip()

    @property
    def why_no_end(self) -> str:
        """The sentence on the end of a forecast without one."""
        if self.basis.startswith(UNKNOWN):
            heading = "Expected end"
        else:
            heading = "Expected end unknown"
        return f"{heading}: {self.basis.removesuffix('.')}."

    def columns(self) -> dict[str, Any]:
        """Return the fields of a request in which the forecast is stored."""
        start_early, start, start_late = self.start or (None, None, None)
        end_early, end, end_late = self.end or (None, None, None)
        return {
            "expected_start": start,
            "expected_start_early": start_early,
            "expected_start_late": start_late,
            "expected_end": end,
            "expected_end_early": end_early,
            "expected_end_late": end_late,
            "forecast_basis": self.basis,
            "forecast_at": self.at,
            "part_done": self.part_done,
            "forecast_stages": {name: end.as_data() for name, end in self.stages.items()},
        }


def expected_class(request: Request) -> str:
    """Return the priority class of a request.

    Before approval, return the class it would have if approved as requested.
    """
    if request.state in SIGNED:
        return request.priority_class or RequestedPriority.NORMAL
    return request.priority_class or request.requested_priority


def end_after(start: Days, low: float, mid: float, high: float) -> Days | None:
    """Return when work ends that starts in an interval and takes `low` to `high` days.

    None if that is too far away.
    """
    if mid > FAR_DAYS:
        return None
    return Days(
        start.early + timedelta(days=low),
        start.likely + timedelta(days=mid),
        start.late + timedelta(days=min(high, 2 * FAR_DAYS)),
    )


def forecast_of(request: Request) -> Forecast | None:
    """Return the stored forecast; None if none was computed since the request was approved."""
    if request.forecast_at is None:
        return None
    start = _stored_days(
        request.expected_start_early, request.expected_start, request.expected_start_late
    )
    end = _stored_days(request.expected_end_early, request.expected_end, request.expected_end_late)
    assumption = ""
    if end and request.state == RequestState.TESTING:
        assumption = TEST_PASSES
    elif end and request.state == RequestState.QUEUED and start is None:
        assumption = STARTED_TODAY
    return Forecast(
        start,
        end,
        request.forecast_basis,
        request.forecast_at,
        {name: Expected.from_data(data) for name, data in request.forecast_stages.items()},
        request.part_done,
        expected_class(request),
        assumption,
    )


def last_stage(stages: Mapping[str, Expected]) -> str:
    """Return the stage that is expected to end last; empty if no end is known.

    Of stages that end together, it is the one that the others wait for.
    """
    ends = []
    for name, end in stages.items():
        if end.at is not None:
            ends.append((end.at, not end.basis.startswith(NOT_BEFORE), name))
    return max(ends)[2] if ends else ""


def _stored_days(early: date | None, likely: date | None, late: date | None) -> Days | None:
    """Return stored days; without a likeliest one they are unknown."""
    if likely is None:
        return None
    return Days(early or likely, likely, late or likely)
