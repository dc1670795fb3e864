"""Start and end of requests in the queue, in the order they have or would have."""

from collections.abc import Iterable
from datetime import date, datetime, timedelta

from django.utils import timezone

from apps.production.domain.forecast import Days, Forecast
from apps.production.domain.priority.expected_start import Start
from apps.production.domain.priority.listing import starts_in_order
from apps.production.models import QueueEntry

#: Later ends are shown as unknown.
_FAR_DAYS = 3650


def forecasts_in_order(entries: Iterable[QueueEntry], *, at: datetime) -> dict[int, Forecast]:
    """Return the forecasts of queued requests by primary key, if this were their order; in two queries."""
    entries = list(entries)
    starts = starts_in_order(((entry.request, entry) for entry in entries), at=at)
    return {entry.pk: forecast_of_queued(entry, starts[entry.pk], at=at) for entry in entries}


def forecast_of_queued(entry: QueueEntry | None, start: Start, *, at: datetime) -> Forecast:
    """Return start and end of a queued request; with an unknown start, the end if it started today."""
    today: date = timezone.localdate(at)
    end = None if start.is_held else end_after(entry, start.days or (today,) * 3)
    if end is None and not start.is_held:
        return Forecast(start.days, None, f"{start.basis} No past jobs of every stage, so its end is unknown.", at)
    basis = start.basis if start.is_known or end is None else f"{start.basis} As if it started today."
    return Forecast(start.days, end, basis, at)


def end_after(entry: QueueEntry | None, start: Days) -> Days | None:
    """Return the days on which a request ends that starts on these and takes as long as its estimate."""
    if entry is None or entry.days is None or entry.days > _FAR_DAYS:
        return None
    low, high = entry.days_low or entry.days, min(entry.days_high or entry.days, 2 * _FAR_DAYS)
    early, likely, late = start
    return early + timedelta(days=low), likely + timedelta(days=entry.days), late + timedelta(days=high)
