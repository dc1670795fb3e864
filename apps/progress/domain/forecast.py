"""The forecast of each request: when it starts and ends. Stored, so that lists and the inbox can use it."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta

from django.db import transaction
from django.utils import timezone

from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import SchedulerError
from apps.production.domain.priority.expected_start import Start
from apps.production.domain.priority.listing import starts_in_line
from apps.production.domain.priority.ranks import IN_LINE
from apps.production.enums import CLOSED, SIGNED, RequestState
from apps.production.models import QueueEntry, Request
from apps.progress.domain.progress import progress_now
from apps.submission.domain.start import able_now

#: Later ends are shown as unknown.
_FAR_DAYS = 3650
_FIELDS = ("expected_start", "expected_end", "forecast_basis")
#: Start, end, and what they are based on or why they are unknown.
Forecast = tuple[date | None, date | None, str]


@transaction.atomic
def note_starts(*, at: datetime) -> None:
    """Store which queued requests a cluster starts now: it has room, and nothing prevents it."""
    soon: dict[int, str] = {}
    for cluster in Cluster.objects.filter(submits=True):
        with suppress(SchedulerError):
            if first := next((request for request in able_now(cluster, at) if request.pk not in soon), None):
                soon[first.pk] = cluster.name
    QueueEntry.objects.exclude(starts_on="").exclude(pk__in=soon).update(starts_on="")
    for pk, name in soon.items():
        QueueEntry.objects.filter(pk=pk).exclude(starts_on=name).update(starts_on=name)


def keep_forecasts(*, at: datetime, request: int | None = None) -> int:
    """Store the forecast of approved requests, or of the one with this primary key; return how many changed."""
    requests = Request.objects.all() if request is None else Request.objects.filter(pk=request)
    forecasted = requests.filter(state__in=[*(SIGNED - CLOSED)])
    open_ones = list(forecasted.select_related("experiment", "queue_entry"))
    forecasts = forecasts_of(open_ones, at=at)
    changed = requests.exclude(pk__in=forecasts).exclude(expected_end=None, expected_start=None, forecast_basis="")
    count = changed.update(expected_start=None, expected_end=None, forecast_basis="")
    for each in open_ones:
        if (each.expected_start, each.expected_end, each.forecast_basis) != forecasts[each.pk]:
            new = dict(zip(_FIELDS, forecasts[each.pk], strict=True))
            count += Request.objects.filter(pk=each.pk, state=each.state).update(**new)
    return count


def forecasts_of(requests: Sequence[Request], *, at: datetime) -> dict[int, Forecast]:
    """Return the forecast of each of these approved requests by primary key."""
    today, found = timezone.localdate(at), {}
    queued = set(Request.objects.filter(IN_LINE, pk__in=[each.pk for each in requests]).values_list("pk", flat=True))
    starts = starts_in_line(at=at) if queued else {}
    for each in requests:
        if each.pk in starts:
            found[each.pk] = _of_queued(each, starts[each.pk], today)
        elif each.state == RequestState.TESTING:
            found[each.pk] = None, _after(today, each), "if its test passes today"
        elif each.state == RequestState.RUNNING:
            expected = progress_now(each, at=at).expected
            found[each.pk] = None, expected.at and timezone.localdate(expected.at), expected.basis
        else:
            found[each.pk] = None, None, f"it is “{each.get_state_display()}”"
    return found


def _of_queued(request: Request, start: Start, today: date) -> Forecast:
    """Return start and end of a queued request; with an unknown start, the end if it started today."""
    end = None if start.is_held else _after(start.likely or today, request)
    if end is None and not start.is_held:
        return start.likely, None, "no past jobs of every stage"
    return start.likely, end, start.basis if start.is_known or end is None else f"{start.basis} As if it started today."


def _after(start: date, request: Request) -> date | None:
    """Return the day on which a request ends that starts on this day and takes as long as its estimate."""
    entry = getattr(request, "queue_entry", None)
    days = entry.days if entry else None
    return None if days is None or days > _FAR_DAYS else start + timedelta(days=days)
