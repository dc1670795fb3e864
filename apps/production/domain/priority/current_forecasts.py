"""The forecasts of queued requests between a change of the queue and their storage."""

from collections.abc import Sequence
from datetime import datetime

from apps.production.domain.priority.listing import (
    current_forecast,
    queue_state,
    starts_in_queue,
)
from apps.production.domain.priority.queue_forecast import forecast_of_queued
from apps.production.domain.priority.ranks import has_rank
from apps.production.models import QueueEntry, Request


def update_forecasts(requests: Sequence[Request], *, at: datetime) -> None:
    """Set the forecasts of queued requests as of now, if a user has changed the queue since.

    So all pages show the dates of the queue page. Nothing is saved: a worker stores them soon.
    """
    ranked = [request for request in requests if has_rank(request)]
    if not ranked:
        return
    state = queue_state()
    stale = [request for request in ranked if current_forecast(request, state) is None]
    if not stale:
        return
    starts = starts_in_queue(at=at, state=state)
    pks = [request.pk for request in stale]
    entries = QueueEntry.objects.select_related("request__experiment").in_bulk(pks)
    for request in stale:
        entry = entries.get(request.pk)
        if entry is not None and request.pk in starts:
            forecast = forecast_of_queued(entry, starts[request.pk], at=at)
            for name, value in forecast.columns().items():
                setattr(request, name, value)
