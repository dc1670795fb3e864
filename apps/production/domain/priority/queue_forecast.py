"""Start and end of a request in the queue, from its position."""

from datetime import date, datetime

from django.utils import timezone

from apps.production.domain.forecast import (
    APPROVED_AND_STARTED,
    STARTED_TODAY,
    Days,
    Forecast,
    end_after,
    expected_class,
)
from apps.production.domain.priority.expected_start import Start
from apps.production.models import QueueEntry


def forecast_of_queued(
    entry: QueueEntry | None,
    start: Start,
    *,
    at: datetime,
    priority_class: str = "",
    assumption: str = "",
) -> Forecast:
    """Return start and end of a queued request.

    If the start is unknown, the end assumes a start today. A request that is on hold or far behind
    in the queue has no end.
    """
    today: date = timezone.localdate(at)
    name = priority_class or (expected_class(entry.request) if entry else "")
    if start.is_held or start.is_far:
        return Forecast(basis=start.basis, at=at, priority_class=name, assumption=assumption)
    end = end_of_entry(entry, start.days or Days.exactly(today))
    if end is None:
        basis = f"{start.basis} Its running time is unknown, and so is its end."
        return Forecast(start.days, None, basis, at, priority_class=name, assumption=assumption)
    if start.is_known:
        return Forecast(
            start.days, end, start.basis, at, priority_class=name, assumption=assumption
        )
    assumption = APPROVED_AND_STARTED if assumption else STARTED_TODAY
    basis = f"{start.basis} As if it started today."
    return Forecast(None, end, basis, at, priority_class=name, assumption=assumption)


def end_of_entry(entry: QueueEntry | None, start: Days) -> Days | None:
    """Return when a request ends that starts in this interval, based on its estimated duration."""
    if entry is None or entry.days is None:
        return None
    ends = end_after(start, entry.days_low or entry.days, entry.days, entry.days_high or entry.days)
    stop = entry.request.stop_date
    if ends is None or stop is None:
        return ends
    return Days(max(ends.early, stop), max(ends.likely, stop), max(ends.late, stop))
