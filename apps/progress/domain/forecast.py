"""The forecast of each request: when it starts and ends. Stored, so that all pages and the API show the same."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import SchedulerError
from apps.production.domain.forecast import Days, Forecast
from apps.production.domain.priority.expected_start import Start
from apps.production.domain.priority.listing import starts_in_line
from apps.production.domain.priority.ranks import IN_LINE
from apps.production.enums import CLOSED, SIGNED, RequestState
from apps.production.models import QueueEntry, Request
from apps.progress.domain.progress import computed_forecast, progress_now
from apps.submission.domain.start import able_now

#: Later ends are shown as unknown.
_FAR_DAYS = 3650
#: The age of a forecast that stays the same is written this often.
_AGE = timedelta(minutes=30)


@transaction.atomic
def note_starts(*, at: datetime) -> None:
    """Store which queued requests a cluster starts now: it has room, and nothing prevents it."""
    soon: dict[int, str] = {}
    for cluster in Cluster.objects.filter(submits=True):
        with suppress(SchedulerError):
            if first := next((request for request in able_now(cluster, at) if request.pk not in soon), None):
                soon[first.pk] = cluster.name
    changed = [*QueueEntry.objects.exclude(starts_on="").exclude(pk__in=soon).values_list("pk", flat=True)]
    QueueEntry.objects.filter(pk__in=changed).update(starts_on="")
    for pk, name in soon.items():
        changed += [pk] * QueueEntry.objects.filter(pk=pk).exclude(starts_on=name).update(starts_on=name)
    if changed:
        keep_forecasts(at=at, requests=Request.objects.filter(pk__in=changed))


def keep_queue_forecasts(*, at: datetime) -> int:
    """Store the forecasts of the queue, whose order has changed; return how many changed."""
    return keep_forecasts(at=at, requests=Request.objects.filter(IN_LINE))


def keep_forecasts(*, at: datetime, requests: QuerySet[Request] | None = None) -> int:
    """Store the forecasts of all approved requests, or of those among these; return how many changed."""
    requests = Request.objects.all() if requests is None else requests
    open_ones = list(requests.filter(state__in=[*(SIGNED - CLOSED)]).select_related("experiment", "queue_entry"))
    forecasts = forecasts_of(open_ones, at=at)
    count = requests.exclude(pk__in=forecasts).exclude(forecast_at=None).update(**Forecast().columns())
    same = []
    for each in open_ones:
        new = forecasts[each.pk].columns()
        if any(getattr(each, name) != value for name, value in new.items() if name != "forecast_at"):
            count += Request.objects.filter(pk=each.pk, state=each.state).update(**new)
        elif each.forecast_at is None or at - each.forecast_at >= _AGE:
            same.append(each.pk)
    Request.objects.filter(pk__in=same).update(forecast_at=at)
    return count


def forecasts_of(requests: Sequence[Request], *, at: datetime) -> dict[int, Forecast]:
    """Return the forecast of each of these approved requests by primary key."""
    today, found = timezone.localdate(at), {}
    queued = set(Request.objects.filter(IN_LINE, pk__in=[each.pk for each in requests]).values_list("pk", flat=True))
    starts = starts_in_line(at=at) if queued else {}
    for each in requests:
        if each.pk in starts:
            found[each.pk] = _of_queued(each, starts[each.pk], at)
        elif each.state == RequestState.TESTING:
            found[each.pk] = Forecast(None, _after((today,) * 3, each), "if its test passes today", at)
        elif each.state == RequestState.RUNNING:
            found[each.pk] = computed_forecast(progress_now(each, at=at, computed=True), at=at)
        else:
            found[each.pk] = Forecast(basis=f"it is “{each.get_state_display()}”", at=at)
    return found


def _of_queued(request: Request, start: Start, at: datetime) -> Forecast:
    """Return start and end of a queued request; with an unknown start, the end if it started today."""
    today: date = timezone.localdate(at)
    end = None if start.is_held else _after(start.days or (today,) * 3, request)
    if end is None and not start.is_held:
        return Forecast(start.days, None, f"{start.basis} No past jobs of every stage, so its end is unknown.", at)
    basis = start.basis if start.is_known or end is None else f"{start.basis} As if it started today."
    return Forecast(start.days, end, basis, at)


def _after(start: Days, request: Request) -> Days | None:
    """Return the days on which a request ends that starts on these and takes as long as its estimate."""
    entry = getattr(request, "queue_entry", None)
    if entry is None or entry.days is None or entry.days > _FAR_DAYS:
        return None
    low, high = entry.days_low or entry.days, min(entry.days_high or entry.days, 2 * _FAR_DAYS)
    early, likely, late = start
    return early + timedelta(days=low), likely + timedelta(days=entry.days), late + timedelta(days=high)
