"""The forecast of each request: when it starts and ends.

It is stored, so that all pages and the API show the same forecast.
"""

from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import SchedulerError
from apps.production.domain.forecast import TEST_PASSES, Days, Forecast
from apps.production.domain.priority.free_clusters import FreeCluster
from apps.production.domain.priority.listing import starts_in_queue
from apps.production.domain.priority.queue_forecast import end_of_entry, forecast_of_queued
from apps.production.domain.priority.ranks import RANKED
from apps.production.enums import CLOSED, SIGNED, RequestState
from apps.production.models import QueueEntry, Request
from apps.progress.domain.progress import compute_forecast, progress_now
from apps.submission.domain.dispatch.start import free_clusters, requests_to_start

#: How often the time of an unchanged forecast is updated.
_AGE = timedelta(minutes=30)


@transaction.atomic
def note_starts(*, at: datetime) -> list[FreeCluster]:
    """Store which queued requests clusters start now: they have room, and nothing prevents it.

    Requests start in the order of the queue, as long as there is room. Return the free clusters
    with the room that is left after these starts.
    """
    soon: dict[int, str] = {}
    clusters = free_clusters(at=at)
    for cluster in clusters:
        with suppress(SchedulerError):
            for request in _started_by(cluster, at, soon):
                soon[request.pk] = cluster.name
    changed = [
        *QueueEntry.objects.exclude(starts_on="").exclude(pk__in=soon).values_list("pk", flat=True)
    ]
    QueueEntry.objects.filter(pk__in=changed).update(starts_on="")
    for pk, name in soon.items():
        entry = QueueEntry.objects.filter(pk=pk).exclude(starts_on=name)
        if entry.update(starts_on=name):
            changed.append(pk)
    if changed:
        keep_forecasts(at=at, requests=Request.objects.filter(pk__in=changed))
    return clusters


def _started_by(free: FreeCluster, at: datetime, elsewhere: Container[int]) -> Iterator[Request]:
    """Yield the requests that a cluster starts now, except those `elsewhere`, and take its room."""
    cluster = Cluster.objects.get(name=free.name)
    for request in requests_to_start(cluster, at):
        experiment_key = request.experiment.key
        if request.pk in elsewhere or not free.room.has_any(experiment_key):
            continue
        free.room.take(experiment_key, free.first_jobs([*request.stages.all()]))
        yield request
        if free.room.jobs <= 0:
            return


def keep_queue_forecasts(*, at: datetime) -> int:
    """Store the forecasts of the queue after its order changed, and return how many changed."""
    return keep_forecasts(at=at, requests=Request.objects.filter(RANKED))


def keep_forecasts(*, at: datetime, requests: QuerySet[Request] | None = None) -> int:
    """Store the forecasts of all open approved requests, and return how many changed.

    `requests` limits the requests. Of a closed request among them, only the completed fraction of
    its jobs is stored.
    """
    with_forecast = Q(state__in=SIGNED - CLOSED)
    if requests is None:
        requests = Request.objects.all()
    else:
        with_forecast |= Q(state__in=CLOSED, work_began_at__isnull=False)
    current = list(requests.filter(with_forecast).select_related("experiment", "queue_entry"))
    forecasts = forecasts_of(current, at=at)

    cleared = requests.exclude(state__in=CLOSED).exclude(pk__in=forecasts).exclude(forecast_at=None)
    count = cleared.update(**Forecast().columns())

    unchanged = []
    for request in current:
        new = forecasts[request.pk].columns()
        if any(
            getattr(request, name) != value for name, value in new.items() if name != "forecast_at"
        ):
            count += Request.objects.filter(pk=request.pk, state=request.state).update(**new)
        elif request.state not in CLOSED and (
            request.forecast_at is None or at - request.forecast_at >= _AGE
        ):
            unchanged.append(request.pk)
    Request.objects.filter(pk__in=unchanged).update(forecast_at=at)
    return count


#: Why there is no date in states whose label does not explain it.
_WAITS: dict[str, str] = {RequestState.DATA_QUALITY: "its data quality is being reviewed"}


def forecasts_of(requests: Sequence[Request], *, at: datetime) -> dict[int, Forecast]:
    """Return the forecast of each request by primary key.

    The requests are approved, or closed after work began.
    """
    today = timezone.localdate(at)
    pks = [request.pk for request in requests]
    queued = set(Request.objects.filter(RANKED, pk__in=pks).values_list("pk", flat=True))
    starts = starts_in_queue(at=at) if queued else {}

    forecasts = {}
    for request in requests:
        entry = getattr(request, "queue_entry", None)
        if request.pk in starts:
            forecast = forecast_of_queued(entry, starts[request.pk], at=at)
        elif request.state == RequestState.TESTING:
            forecast = Forecast(None, end_of_entry(entry, Days.exactly(today)), TEST_PASSES, at)
        elif request.state == RequestState.RUNNING:
            forecast = compute_forecast(progress_now(request, at=at, computed=True), at=at)
        elif request.state in CLOSED:
            forecast = Forecast(part_done=progress_now(request, at=at).part_done)
        else:
            basis = _WAITS.get(request.state, f"it is {request.get_state_display().lower()}")
            part = None
            if request.work_began_at:
                part = progress_now(request, at=at).part_done
            forecast = Forecast(basis=basis, at=at, part_done=part)
        forecasts[request.pk] = forecast
    return forecasts
