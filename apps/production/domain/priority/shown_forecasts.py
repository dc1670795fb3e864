"""The forecasts that pages and lists of requests show, which are the same."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.db.models import Prefetch, prefetch_related_objects

from apps.production.domain.content.model import RequestContent
from apps.production.domain.content.stages import content_of
from apps.production.domain.estimates.figures import Estimate
from apps.production.domain.estimates.past import estimates_of
from apps.production.domain.forecast import Forecast, forecast_of
from apps.production.domain.priority.listing import (
    current_forecast,
    queue_state,
    starts_in_queue,
)
from apps.production.domain.priority.prospects import (
    ApprovalCandidate,
    QueueNow,
    forecasts_if_approved,
    read_queue,
)
from apps.production.domain.priority.queue_forecast import forecast_of_queued
from apps.production.domain.priority.ranks import has_rank
from apps.production.enums import CLOSED, SIGNED
from apps.production.models import QueueEntry, Request, Stage

#: Why a request has no end before its approval, if nothing else is the reason.
ONCE_APPROVED = "expected once it is approved"


def shown_forecasts(requests: Sequence[Request], *, at: datetime) -> list[Forecast]:
    """Return the forecast of each request, in a fixed number of queries.

    The forecast of an approved request is stored, or as of now after a change of the queue. Before
    approval, it is computed as if the request was approved now.
    """
    update_forecasts(requests, at=at)
    unapproved = []
    for request in requests:
        if request.state not in SIGNED | CLOSED:
            unapproved.append(request)
    if_approved = _forecasts_if_approved(unapproved, at)

    forecasts = []
    for request in requests:
        forecasts.append(if_approved.get(request.pk) or forecast_of(request) or Forecast())
    return forecasts


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


def _forecasts_if_approved(requests: Sequence[Request], at: datetime) -> dict[int, Forecast]:
    if not requests:
        return {}
    by_request = {}
    for estimated in estimates_if_approved(requests, at=at):
        why_no_end = ""
        if estimated.forecast.end is None:
            why_no_end = estimated.estimate.why_no_end or ONCE_APPROVED
        basis = why_no_end or estimated.forecast.basis
        by_request[estimated.request.pk] = replace(estimated.forecast, basis=basis)
    return by_request


@dataclass(frozen=True)
class EstimatedRequest:
    """A request with its content, and what it takes if it is approved now."""

    request: Request
    content: RequestContent
    estimate: Estimate
    forecast: Forecast


def estimates_if_approved(
    requests: Sequence[Request], *, at: datetime, queue: QueueNow | None = None
) -> list[EstimatedRequest]:
    """Return estimate and forecast of requests approved now, in a fixed number of queries.

    Pass `queue` if it was read already.
    """
    queue = queue or read_queue(at=at)
    stages = Stage.objects.order_by("position")
    # Estimates need no services, but a cluster starts no jobs that need one that is down.
    needs_services = bool(queue.starts.clusters)
    if needs_services:
        stages = stages.prefetch_related("services")
    prefetch_related_objects(requests, Prefetch("stages", stages), "workflow__type", "experiment")
    contents = {request.pk: content_of(request, services=needs_services) for request in requests}
    estimates = estimates_of(
        {request.pk: (contents[request.pk], request.experiment_id) for request in requests}, at
    )
    candidates = []
    for request in requests:
        candidates.append(ApprovalCandidate(request, contents[request.pk], estimates[request.pk]))
    forecasts = forecasts_if_approved(candidates, at=at, queue=queue)
    estimated = []
    for request, forecast in zip(requests, forecasts, strict=True):
        estimated.append(
            EstimatedRequest(request, contents[request.pk], estimates[request.pk], forecast)
        )
    return estimated
