"""The place and dates that a request would have in the queue: if approved, or in another class."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import itemgetter

from django.utils import timezone

from apps.accounts.models import Experiment
from apps.production.domain.content.model import RequestContent
from apps.production.domain.estimates.figures import Estimate
from apps.production.domain.experiment_shares import Shares, read_shares
from apps.production.domain.forecast import IF_APPROVED, Days, Forecast, expected_class, forecast_of
from apps.production.domain.holds import experiments_on_hold
from apps.production.domain.priority.expected_start import MOST_DAYS, expected_start
from apps.production.domain.priority.free_clusters import AutomaticStarts, read_automatic_starts
from apps.production.domain.priority.listing import held_by, queue_state
from apps.production.domain.priority.pace import (
    Throughput,
    Work,
    countable_size,
    read_throughput,
    work_ahead,
)
from apps.production.domain.priority.queue_forecast import forecast_of_queued
from apps.production.domain.priority.ranks import entries_ahead, has_rank
from apps.production.domain.priority.rescoring import facts_of
from apps.production.domain.priority.score import sort_key, terms_of, total
from apps.production.enums import SIGNED, RequestedPriority, RequestState
from apps.production.models import QueueEntry, Request


def what_if_level(
    request: Request, *, priority_class: str, number: int | None, at: datetime
) -> int | None:
    """Return the rank that a request would have with this class and number.

    None if it is not in the queue.
    """
    return _ranks_with(_queued(request), [priority_class], number, at).get(priority_class)


def ranks_by_class(request: Request, *, at: datetime) -> list[tuple[str, int]]:
    """Return the rank that a request would have in each class, most urgent first.

    Empty outside the queue.
    """
    ranks = _ranks_with(
        _queued(request), [*reversed(RequestedPriority.values)], request.priority, at
    )
    return [(RequestedPriority(value).label, rank) for value, rank in ranks.items()]


@dataclass(frozen=True)
class Prospect:
    """The rank of a request in a class, and its start and end if known.

    `moves_back` counts the requests behind it that can start, if it would be new in the queue; it
    delays each by about `delay`, which is None while the pace is unknown. `starts_on`
    is the cluster with room that starts it at once, or empty.
    """

    rank: int
    forecast: Forecast
    moves_back: int = 0
    delay: timedelta | None = None
    starts_on: str = ""


@dataclass(frozen=True)
class QueueNow:
    """The queue as one reading found it, for the prospects of any number of requests."""

    places: "_Places"
    throughput: Throughput
    holds: set[int | None]
    starts: AutomaticStarts


def read_queue(*, at: datetime) -> QueueNow:
    """Return the queue as it is now, in a fixed number of queries."""
    state = queue_state()
    starts = read_automatic_starts(state, at=at)
    return QueueNow(_read_places(), read_throughput(state), experiments_on_hold(), starts)


@dataclass(frozen=True)
class Candidate:
    """A request that may be approved, with its content and its estimate."""

    request: Request
    content: RequestContent
    estimate: Estimate


def prospects_if_approved(
    candidate: Candidate, *, at: datetime, queue: QueueNow | None = None
) -> dict[str, Prospect]:
    """Return the prospect of a request by class, if it were approved now with this estimate.

    Pass `queue`, the result of `read_queue`, to save its queries.
    """
    queue = queue or read_queue(at=at)
    entry = _entry_if_approved(candidate)
    starts_on = queue.starts.clusters_for(candidate.request, candidate.content)
    places = [_PlaceInClass(entry, name, starts_on) for name in RequestedPriority.values]
    prospects = _prospects(places, at, queue, assumption=IF_APPROVED)
    return dict(zip(RequestedPriority.values, prospects, strict=True))


def forecasts_if_approved(
    candidates: Sequence[Candidate], *, at: datetime, queue: QueueNow | None = None
) -> list[Forecast]:
    """Return the forecast of each request, if it alone were approved now as requested.

    The number of queries is fixed. Pass `queue`, the result of `read_queue`, to save them.
    """
    queue = queue or read_queue(at=at)
    places = []
    for candidate in candidates:
        name = expected_class(candidate.request)
        starts_on = queue.starts.clusters_for(candidate.request, candidate.content)
        places.append(_PlaceInClass(_entry_if_approved(candidate), name, starts_on))
    prospects = _prospects(places, at, queue, assumption=IF_APPROVED)
    return [prospect.forecast for prospect in prospects]


def starts_if_approved(
    candidates: Iterable[Candidate], *, at: datetime, queue: QueueNow
) -> dict[int, str]:
    """Return which cluster starts each request at once if all were approved now, by primary key.

    A cluster starts the one that would be first in the queue; the others are left out.
    """
    places = []
    for candidate in candidates:
        request = candidate.request
        name = expected_class(request)
        place = queue.places.place_of(_entry_if_approved(candidate), name, request.priority, at)
        places.append((place.key, candidate, place.taken_ahead))
    starts: dict[int, str] = {}
    taken: set[str] = set()
    for _, candidate, taken_ahead in sorted(places, key=itemgetter(0)):
        request = candidate.request
        if held_by(request, queue.holds):
            continue
        for cluster in queue.starts.clusters_for(request, candidate.content):
            if cluster not in taken | taken_ahead:
                starts[request.pk] = cluster
                taken.add(cluster)
                break
    return starts


def with_expected_end(
    estimate: Estimate,
    request: Request,
    content: RequestContent,
    *,
    start: Days | None,
    at: datetime,
) -> Estimate:
    """Return the estimate with the end that all pages show, and with the expected `start` if known.

    Before approval, both are those of a request approved now as requested.
    """
    if request.state not in SIGNED:
        candidate = Candidate(request, content, estimate)
        return estimate.with_forecast(forecasts_if_approved([candidate], at=at)[0])
    forecast = forecast_of(request)
    if forecast:
        return estimate.with_forecast(replace(forecast, start=start))
    return replace(estimate, begins=start)


def prospects_in_queue(request: Request, *, at: datetime) -> dict[str, Prospect]:
    """Return the prospects of a queued request in its own class and in each higher one.

    Empty if it is not queued or has no higher class.
    """
    classes = RequestedPriority.values
    own = classes.index(expected_class(request))
    entry: QueueEntry | None = getattr(request, "queue_entry", None)
    if entry is None or not entry.is_queued or not has_rank(request) or len(classes[own:]) < 2:
        return {}
    # A cluster that starts it now does so in a higher class, too.
    starts_on = [entry.starts_on] if entry.starts_on else []
    places = [_PlaceInClass(entry, name, starts_on) for name in classes[own:]]
    in_classes = _prospects(places, at, read_queue(at=at))
    prospects = dict(zip(classes[own:], in_classes, strict=True))
    # In its own class the stored values apply, which may depend on a manual move or a free cluster.
    stored = forecast_of(request)
    if stored is not None:
        prospects[classes[own]] = Prospect(entries_ahead(entry).count() + 1, stored)
    return prospects


def request_of_draft(
    request: Request | None, experiment: Experiment, content: RequestContent
) -> Request:
    """Return an unsaved request with the fields that decide its place in the queue."""
    return Request(
        pk=request.pk if request else None,
        experiment=experiment,
        deadline=content.deadline,
        requested_priority=content.requested_priority,
        priority_class=request.priority_class if request else "",
        priority=request.priority if request else None,
        submitted_at=request.submitted_at if request else None,
    )


def prospects_of_draft(
    experiment: Experiment,
    content: RequestContent,
    estimate: Estimate,
    *,
    request: Request | None,
    at: datetime,
) -> dict[str, Prospect]:
    """Return the prospect by class, if a request with this content were approved now."""
    draft = request_of_draft(request, experiment, content)
    return prospects_if_approved(Candidate(draft, content, estimate), at=at)


@dataclass(frozen=True)
class _PlaceInClass:
    """A request in a priority class, and the clusters that start it now if it is first there."""

    entry: QueueEntry
    priority_class: str
    starts_on: Sequence[str]


def _entry_if_approved(candidate: Candidate) -> QueueEntry:
    size = candidate.estimate.size
    days = candidate.estimate.days
    return QueueEntry(
        request=candidate.request,
        core_seconds=size.core_seconds if size else None,
        days_low=days.low if days else None,
        days=days.mid if days else None,
        days_high=days.high if days else None,
    )


def _prospects(
    places: Sequence[_PlaceInClass],
    at: datetime,
    queue: QueueNow,
    *,
    assumption: str = "",
) -> list[Prospect]:
    """Return the prospect of each request in its class."""
    pace = queue.throughput.pace
    prospects = []
    for in_class in places:
        entry = in_class.entry
        name = in_class.priority_class
        place = queue.places.place_of(entry, name, entry.request.priority, at)
        free = [cluster for cluster in in_class.starts_on if cluster not in place.taken_ahead]
        held = held_by(entry.request, queue.holds)
        starts_on = free[0] if free and not held else ""
        start = expected_start(
            ahead=place.work_ahead,
            throughput=queue.throughput,
            at=at,
            held=held,
            starts_on=starts_on,
        )
        forecast = forecast_of_queued(
            entry, start, at=at, priority_class=name, assumption=assumption
        )
        # Its work delays those behind it.
        delay = None
        size = countable_size(entry.core_seconds, entry.request.stop_date)
        if pace and size is not None:
            delay = timedelta(days=min(size / pace.usual, MOST_DAYS))
        prospects.append(
            Prospect(place.ahead + 1, forecast, place.startable_behind, delay, starts_on)
        )
    return prospects


def _queued(request: Request) -> QueueEntry | None:
    queued = QueueEntry.objects.select_related("request__experiment").filter(
        pk=request.pk, is_queued=True
    )
    return queued.first() if has_rank(request) else None


def _ranks_with(
    entry: QueueEntry | None, classes: Sequence[str], number: int | None, at: datetime
) -> dict[str, int]:
    """Return the rank of an entry with each of these classes, in two queries.

    Empty without an entry.
    """
    if entry is None:
        return {}
    places = _read_places()
    return {name: places.place_of(entry, name, number, at).ahead + 1 for name in classes}


@dataclass(frozen=True)
class _Place:
    """How many requests would be ahead of one, the work of those of them that can start,
    and how many of those behind can.

    `taken_ahead` are the clusters that start one of those ahead now; `key` orders places.
    """

    key: tuple[float, float]
    ahead: int
    work_ahead: Work
    startable_behind: int
    taken_ahead: set[str]


@dataclass(frozen=True)
class _Places:
    """The places of the queue in order, and the work before each of the requests that can start.

    Two aggregates per entry in the database took 27 % of the CPU time of a desk of 25 requests;
    counting here takes 5 %.
    """

    shares: Shares
    keys: list[tuple[float, float]]
    work_before: list[Work]
    index: Mapping[int, int]
    #: The place of the request that each cluster starts now.
    starts: Mapping[str, int]

    def place_of(
        self, entry: QueueEntry, priority_class: str, number: int | None, at: datetime
    ) -> _Place:
        """Return the place of an entry if it had this class and number."""
        facts = replace(facts_of(entry, self.shares), priority_class=priority_class, number=number)
        points = total(terms_of(facts, today=timezone.localdate(at)))
        key = sort_key(points, entry.request.submitted_at or at)
        place_key = (-key, float(entry.request_id or math.inf))
        place = bisect_left(self.keys, place_key)
        ahead = place
        before = self.work_before[place]
        work_behind = self.work_before[-1] - before
        own = self.index.get(entry.request_id)
        if own is not None:
            # The request itself is neither ahead of its new place nor behind it.
            itself = self.work_before[own + 1] - self.work_before[own]
            if own < place:
                ahead -= 1
                before -= itself
            else:
                work_behind -= itself
        taken = {name for name, first in self.starts.items() if first < place and first != own}
        return _Place(place_key, ahead, before, work_behind.requests, taken)


def _read_places() -> _Places:
    queue = QueueEntry.objects.filter(is_queued=True).order_by("-sort_key", "tie", "pk")
    keys: list[tuple[float, float]] = []
    sizes = []
    index = {}
    starts = {}
    rows = queue.values_list(
        "pk",
        "sort_key",
        "tie",
        "request__state",
        "core_seconds",
        "request__arguments__stop_on",
        "starts_on",
    )
    for pk, sort_points, tie, state, core_seconds, stop_on, starts_on in rows:
        if starts_on:
            starts[starts_on] = len(keys)
        index[pk] = len(keys)
        keys.append((-sort_points, tie))
        sizes.append((state == RequestState.QUEUED, countable_size(core_seconds, stop_on)))
    return _Places(read_shares(), keys, work_ahead(sizes), index, starts)
