"""The stored forecast of an approved request: the one that all pages and the API show. `progress` computes it."""

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from apps.production.models import Request

#: The earliest, likeliest and latest of some days.
Days = tuple[date, date, date]


@dataclass(frozen=True)
class Forecast:
    """When a request starts and ends; None where that is unknown or past. `basis` says what it rests on, or why not.

    `at` is when it was computed.
    """

    start: Days | None = None
    end: Days | None = None
    basis: str = ""
    at: datetime | None = None

    @property
    def is_wide(self) -> bool:
        return self.end is not None and self.end[0] != self.end[2]

    def columns(self) -> dict[str, Any]:
        """Return the fields of a request that store it."""
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
        }


def forecast_of(request: Request) -> Forecast | None:
    """Return the stored forecast; None if none was computed since the request was approved."""
    if request.forecast_at is None:
        return None
    start, end = request.expected_start, request.expected_end
    return Forecast(
        (request.expected_start_early or start, start, request.expected_start_late or start) if start else None,
        (request.expected_end_early or end, end, request.expected_end_late or end) if end else None,
        request.forecast_basis,
        request.forecast_at,
    )
