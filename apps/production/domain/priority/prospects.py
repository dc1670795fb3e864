"""The place and dates that a request would have in the queue: if approved, or in another class."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from apps.accounts.models import Experiment
from apps.production.domain.content.model import RequestContent
from apps.production.domain.estimates.figures import Estimate
from apps.production.domain.forecast import IF_APPROVED, Days, Forecast, expected_class, forecast_of
from apps.production.domain.holds import experiments_on_hold
from apps.production.domain.priority.expected_start import expected_start
from apps.production.domain.priority.free_clusters import (
    AutomaticStarts,
    StartNow,
    StartsNow,
    read_automatic_starts,
)
from apps.production.domain.priority.listing import held_by, queue_state
from apps.production.domain.priority.pace import Throughput, countable_size, read_throughput
from apps.production.domain.priority.places import Place, QueuePlaces, read_places
from apps.production.domain.priority.queue_forecast import forecast_of_queued
from apps.production.domain.priority.ranks import entries_ahead, has_rank
from apps.production.enums import SIGNED, RequestedPriority
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

    `starts_on` is the cluster with room that starts it at once, or empty.
    """

    rank: int
    forecast: Forecast
    starts_on: str = ""


@dataclass(frozen=True)
class QueueNow:
    """The queue as one reading found it, for the prospects of any number of requests."""

    places: QueuePlaces
    throughput: Throughput
    holds: set[int | None]
    starts: AutomaticStarts


def read_queue(*, at: datetime) -> QueueNow:
    """Return the queue as it is now, in a fixed number of queries."""
    state = queue_state()
    starts = read_automatic_starts(state, at=at)
    return QueueNow(read_places(), read_throughput(state), experiments_on_hold(), starts)


@dataclass(frozen=True)
class ApprovalCandidate:
    """A request that may be approved, with its content and its estimate."""

    request: Request
    content: RequestContent
    estimate: Estimate


def prospects_if_approved(
    candidate: ApprovalCandidate, *, at: datetime, queue: QueueNow | None = None
) -> dict[str, Prospect]:
    """Return the prospect of a request by class, if it were approved now with this estimate.

    Pass `queue`, the result of `read_queue`, to save its queries.
    """
    queue = queue or read_queue(at=at)
    entry = _entry_if_approved(candidate)
    places = [_PlaceInClass(entry, name, candidate) for name in RequestedPriority.values]
    prospects = _prospects(places, at, queue, assumption=IF_APPROVED)
    return dict(zip(RequestedPriority.values, prospects, strict=True))


def forecasts_if_approved(
    candidates: Sequence[ApprovalCandidate], *, at: datetime, queue: QueueNow | None = None
) -> list[Forecast]:
    """Return the forecast of each request, if it alone were approved now as requested.

    The number of queries is fixed. Pass `queue`, the result of `read_queue`, to save them.
    """
    queue = queue or read_queue(at=at)
    places = []
    for candidate in candidates:
        name = expected_class(candidate.request)
        places.append(_PlaceInClass(_entry_if_approved(candidate), name, candidate))
    prospects = _prospects(places, at, queue, assumption=IF_APPROVED)
    return [prospect.forecast for prospect in prospects]


@dataclass(frozen=True)
class NewEntry:
    """A request in its place of the queue, if it were approved now.

    `starts_on` is the cluster that starts it at once, or empty; `displaced_pk` is the key of
    the queued request that would have had the room, if any.
    """

    candidate: ApprovalCandidate
    place: Place
    size: float | None
    starts_on: str = ""
    displaced_pk: int | None = None


def entries_if_approved(
    candidates: Iterable[ApprovalCandidate],
    *,
    at: datetime,
    queue: QueueNow,
    priority_class: str = "",
) -> list[NewEntry]:
    """Return the places of these requests if all were approved now, in the order of the queue.

    Each gets the given class, or the one that was requested.
    """
    entries = []
    for candidate in candidates:
        request = candidate.request
        unsaved = _entry_if_approved(candidate)
        name = priority_class or expected_class(request)
        place = queue.places.find_place(unsaved, name, request.priority, at)
        size = countable_size(unsaved.core_seconds, request.stop_date)
        entries.append(NewEntry(candidate, place, size))
    starts = StartsNow(queue.starts.clusters, queue.places.starters)
    placed = []
    for entry in sorted(entries, key=lambda entry: entry.place.key):
        start = None
        if not held_by(entry.candidate.request, queue.holds):
            start = _start_now(entry.candidate, entry.place, queue, starts)
        if start:
            placed.append(
                replace(entry, starts_on=start.cluster_name, displaced_pk=start.displaced_pk)
            )
        else:
            placed.append(entry)
    return placed


def with_expected_end(
    estimate: Estimate,
    request: Request,
    content: RequestContent,
    *,
    start: Days | None,
    at: datetime,
    queue: QueueNow | None = None,
) -> Estimate:
    """Return the estimate with the end that all pages show, and with the expected `start` if known.

    Before approval, both are those of a request approved now as requested. Pass `queue`, the result
    of `read_queue`, to save its queries.
    """
    if request.state not in SIGNED:
        candidate = ApprovalCandidate(request, content, estimate)
        [forecast_if_approved] = forecasts_if_approved([candidate], at=at, queue=queue)
        return estimate.with_forecast(forecast_if_approved)
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
    places = [_PlaceInClass(entry, name) for name in classes[own:]]
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
    queue: QueueNow | None = None,
) -> dict[str, Prospect]:
    """Return the prospect by class, if a request with this content were approved now.

    Pass `queue`, the result of `read_queue`, to save its queries.
    """
    draft = request_of_draft(request, experiment, content)
    return prospects_if_approved(ApprovalCandidate(draft, content, estimate), at=at, queue=queue)


@dataclass(frozen=True)
class _PlaceInClass:
    """A request in a priority class; one that is not in the queue yet as a candidate."""

    entry: QueueEntry
    priority_class: str
    candidate: ApprovalCandidate | None = None


def _entry_if_approved(candidate: ApprovalCandidate) -> QueueEntry:
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
    prospects = []
    for in_class in places:
        entry = in_class.entry
        name = in_class.priority_class
        place = queue.places.find_place(entry, name, entry.request.priority, at)
        held = held_by(entry.request, queue.holds)
        starts_on = entry.starts_on
        if in_class.candidate:
            starts = StartsNow(queue.starts.clusters, queue.places.starters)
            start_now = _start_now(in_class.candidate, place, queue, starts)
            starts_on = start_now.cluster_name if start_now else ""
        if held:
            starts_on = ""
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
        prospects.append(Prospect(place.ahead + 1, forecast, starts_on))
    return prospects


def _start_now(
    candidate: ApprovalCandidate, place: Place, queue: QueueNow, starts: StartsNow
) -> StartNow | None:
    """Return which cluster starts a request at this place now, taking its room; None if none."""
    clusters = queue.starts.clusters_for(candidate.request, candidate.content)
    experiment_key = candidate.request.experiment.key
    return starts.start(place.index, experiment_key, candidate.content.stages, clusters)


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
    places = read_places()
    return {name: places.find_place(entry, name, number, at).ahead + 1 for name in classes}
