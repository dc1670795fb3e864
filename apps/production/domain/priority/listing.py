"""The queue as pages and API show it: lines with rank, score and expected start.

The number of queries is fixed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from django.utils import timezone

from apps.accounts.domain.experiments import visible_experiments
from apps.accounts.models import User
from apps.accounts.permissions import scope_of
from apps.core.models import Event
from apps.production.domain.forecast import Forecast, forecast_of
from apps.production.domain.holds import experiments_on_hold
from apps.production.domain.priority.expected_start import Start, expected_start
from apps.production.domain.priority.pace import (
    QueuedWork,
    Throughput,
    countable_size,
    read_throughput,
    work_ahead,
)
from apps.production.domain.priority.queue_forecast import forecast_of_queued
from apps.production.domain.priority.ranks import entries_ahead, has_rank, ranked_requests
from apps.production.domain.priority.score import Term, manual_term, total_score, waiting_term
from apps.production.domain.slack import Slack, slack_of
from apps.production.enums import NOT_STARTED, RequestState
from apps.production.models import QueueEntry, QueueState, Request
from apps.production.permissions import may_prioritise, may_reorder_queue

PAGE = 50
#: The section of the score bar for each term.
_PARTS = {
    "class": "level",
    "number": "level",
    "asked": "urgency",
    "deadline": "urgency",
    "size": "urgency",
}
_PARTS |= {"share": "urgency", "waiting": "waiting", "hand": "waiting"}
#: The kinds of events in the queue history.
MOVED = "request.moved"
SET = "request.priority_set"
SHARE = "share.set"


@dataclass(frozen=True)
class QueueRow:
    """A request with the terms of its score.

    It has a rank and an expected start if it is in the queue.
    """

    request: Request
    rank: int | None
    terms: tuple[Term, ...]
    start: Start | None
    slack: Slack | None = None
    is_moved: bool = False
    may_set: bool = False
    may_reorder: bool = False
    held_with: str = ""

    @property
    def score(self) -> float:
        return total_score(self.terms)

    @property
    def core_seconds(self) -> float | None:
        """The estimated size, or None."""
        return self._entry.core_seconds if self._entry else None

    @property
    def size_basis(self) -> str:
        """What the estimated size is based on."""
        return self._entry.size_basis if self._entry else ""

    @property
    def size_by_limit(self) -> bool:
        """Whether the size counts stages until their time limits, so that it is at most that."""
        return self._entry is not None and self._entry.size_by_limit

    @property
    def needed_change(self) -> str:
        """What must change before it starts; empty if nothing must, or once it has started."""
        if self._entry is None or self.request.state not in NOT_STARTED:
            return ""
        return self._entry.needed_change

    @property
    def _entry(self) -> QueueEntry | None:
        return getattr(self.request, "queue_entry", None)

    @property
    def parts(self) -> dict[str, float]:
        """The points of the score for the bar. Subtracted points come last."""
        parts = dict.fromkeys(_PARTS.values(), 0.0) | {"subtracted": 0.0}
        for term in self.terms:
            parts[_PARTS[term.key] if term.points > 0 else "subtracted"] += abs(term.points)
        return parts

    @property
    def is_held(self) -> bool:
        return self.request.state == RequestState.ON_HOLD


@dataclass(frozen=True)
class QueueRows:
    """Lines that a user can see, after some rank. `total` counts the queue of all experiments."""

    rows: list[QueueRow]
    total: int
    visible: int
    held: int
    next_after: int | None
    state: QueueState
    throughput: Throughput


@dataclass(frozen=True)
class _QueueReading:
    """What the start of every queued request depends on, besides the work ahead of it."""

    state: QueueState
    throughput: Throughput
    holds: set[int | None]
    at: datetime

    def held_by(self, request: Request) -> str:
        """Return which hold keeps a request from starting; empty if none does."""
        return held_by(request, self.holds)

    def shown_start(self, request: Request, entry: QueueEntry | None, ahead: QueuedWork) -> Start:
        """Return the start from the stored forecast.

        It is computed while the request is held, or has no forecast since the last change of the
        queue.
        """
        forecast = current_forecast(request, self.state)
        if forecast is None or self.held_by(request):
            return self.computed_start(request, entry, ahead)
        early, likely, late = forecast.start or (None, None, None)
        return Start(early, likely, late, forecast.basis)

    def computed_start(
        self, request: Request, entry: QueueEntry | None, ahead: QueuedWork
    ) -> Start:
        """Return the start that follows from the work ahead and the throughput."""
        return expected_start(
            ahead=ahead,
            throughput=self.throughput,
            at=self.at,
            held=self.held_by(request),
            starts_on=entry.starts_on if entry else "",
        )


def _read_for_starts(state: QueueState, *, at: datetime) -> _QueueReading:
    return _QueueReading(state, read_throughput(state), experiments_on_hold(), at)


def queue_rows(
    *, user: User, at: datetime, after: int = 0, size: int = PAGE, is_computed: bool = False
) -> QueueRows:
    """Return the part of the queue that this user sees after some rank.

    Ranks count the requests of all experiments. Dates are the stored ones, or with `is_computed`
    those of now, as beside the preview of a change, whose dates are computed too.
    """
    queued = _read_queue()
    scope = scope_of(user)
    visible = [place for place in queued if scope.sees(place.experiment_id)]
    following = [place for place in visible if place.rank > after]
    shown = following[:size]
    related = "experiment", "created_by", "submitted_by", "queue_entry"
    requests = Request.objects.select_related(*related).in_bulk([place.pk for place in shown])

    state = queue_state()
    if is_computed:
        state.changed_at = at  # no stored date is newer
    reading = _read_for_starts(state, at=at)
    works = work_ahead((place.can_start, place.core_seconds) for place in queued)

    rows = []
    for place in shown:
        request = requests.get(place.pk)
        if request is None:  # deleted meanwhile
            continue
        entry = getattr(request, "queue_entry", None)
        start = reading.shown_start(request, entry, works[place.rank - 1])
        row = _queue_row(request, entry, place.rank, start, state=state, user=user, at=at)
        if not row.is_held:
            row = replace(row, held_with=reading.held_by(request))
        rows.append(row)

    next_after = rows[-1].rank if rows and len(following) > size else None
    requests_that_can_start = works[-1].requests
    return QueueRows(
        rows=rows,
        total=len(queued),
        visible=len(visible),
        held=len(queued) - requests_that_can_start,
        next_after=next_after,
        state=state,
        throughput=reading.throughput,
    )


class _Place(NamedTuple):
    """A request in the queue; `core_seconds` is its work, None if unknown."""

    rank: int
    pk: int
    experiment_id: int
    can_start: bool
    core_seconds: float | None


def _read_queue() -> list[_Place]:
    """Return all requests in the queue by rank, in one query."""
    columns = "pk", "experiment_id", "state", "queue_entry__core_seconds", "arguments__stop_on"
    places = []
    for rank, row in enumerate(ranked_requests().values_list(*columns), start=1):
        pk, experiment_id, state, core_seconds, stop_on = row
        size = countable_size(core_seconds, stop_on)
        places.append(_Place(rank, pk, experiment_id, state == RequestState.QUEUED, size))
    return places


def queue_row_of(request: Request, *, user: User, at: datetime) -> QueueRow | None:
    """Return the line of one request, in a few queries; None if it has no score."""
    entry: QueueEntry | None = getattr(request, "queue_entry", None)
    if entry is None:
        return None
    state = queue_state()
    rank, start = _rank_and_start(request, entry, state, at)
    return _queue_row(request, entry, rank, start, state=state, user=user, at=at)


def start_of(request: Request, *, at: datetime) -> Start | None:
    """Return the expected start of a request.

    None if it is not in the queue or has no score yet.
    """
    entry = None
    if has_rank(request):
        entry = QueueEntry.objects.filter(request=request).first()
    return None if entry is None else _rank_and_start(request, entry, queue_state(), at)[1]


def starts_in_queue(*, at: datetime, state: QueueState | None = None) -> dict[int, Start]:
    """Return the expected start of every request in the queue by primary key, in four queries.

    Pass the `state` of the queue, if it has been read, to save one of them.
    """
    requests = ranked_requests().select_related("experiment", "queue_entry")
    return starts_in_order(
        ((request, getattr(request, "queue_entry", None)) for request in requests),
        at=at,
        state=state,
    )


def starts_in_order(
    rows: Iterable[tuple[Request, QueueEntry | None]],
    *,
    at: datetime,
    state: QueueState | None = None,
) -> dict[int, Start]:
    """Return the expected starts by primary key if the queue had this order, in three queries."""
    reading = _read_for_starts(state or queue_state(), at=at)
    rows = list(rows)
    sizes = []
    for request, entry in rows:
        size = countable_size(entry.core_seconds if entry else None, request.stop_date)
        sizes.append((request.state == RequestState.QUEUED, size))
    works = work_ahead(sizes)
    starts = {}
    for (request, entry), ahead in zip(rows, works, strict=False):
        starts[request.pk] = reading.computed_start(request, entry, ahead)
    return starts


def _rank_and_start(
    request: Request, entry: QueueEntry, state: QueueState, at: datetime
) -> tuple[int | None, Start | None]:
    if not (entry.is_queued and has_rank(request)):
        return None, None
    columns = "request__state", "core_seconds", "request__arguments__stop_on"
    entries = list(entries_ahead(entry).values_list(*columns))
    ahead = work_ahead(
        (status == RequestState.QUEUED, countable_size(core_seconds, stop_on))
        for status, core_seconds, stop_on in entries
    )[-1]
    start = _read_for_starts(state, at=at).shown_start(request, entry, ahead)
    return len(entries) + 1, start


def current_forecast(request: Request, state: QueueState) -> Forecast | None:
    """Return the stored forecast, unless a user has changed the queue since."""
    forecast = forecast_of(request)
    if forecast and forecast.at and state.changed_at and forecast.at < state.changed_at:
        return None
    return forecast


def queue_state() -> QueueState:
    """Return the state of the queue with its last change. Empty before the first change."""
    return QueueState.objects.filter(pk=1).first() or QueueState()


def _queue_row(
    request: Request,
    entry: QueueEntry | None,
    rank: int | None,
    start: Start | None,
    *,
    state: QueueState,
    user: User,
    at: datetime,
) -> QueueRow:
    terms: list[Term] = []
    if entry is not None:
        terms = [
            *(Term(**term) for term in entry.terms),
            waiting_term(request.submitted_at or at, at),
        ]
    is_moved = entry is not None and entry.hand_at is not None
    if entry is not None and is_moved:
        terms.append(manual_term(entry.hand_points, by=entry.hand_by, reason=entry.hand_reason))
    forecast = current_forecast(request, state)
    if start and forecast is None:
        forecast = forecast_of_queued(entry, start, at=at)
    slack = slack_of(request.deadline, forecast, today=timezone.localdate(at))
    return QueueRow(
        request=request,
        rank=rank,
        terms=tuple(terms),
        start=start,
        slack=slack,
        is_moved=is_moved,
        may_set=may_prioritise(user, request),
        may_reorder=rank is not None and may_reorder_queue(user, request),
    )


def held_by(request: Request, holds: set[int | None]) -> str:
    """Return which hold keeps a request from starting; empty if none does.

    `holds` are the experiments on hold; None among them stands for all production.
    """
    if request.state == RequestState.ON_HOLD:
        return "it is on hold"
    if None in holds:
        return "all production is on hold"
    if request.experiment_id not in holds:
        return ""
    return f"{request.experiment.name} is on hold"


@dataclass(frozen=True)
class QueueChange:
    """A change of the queue by a user.

    Key and reason are empty for a request that the reader cannot see.
    """

    event: Event
    target: str
    reason: str

    @property
    def is_share(self) -> bool:
        return self.event.kind == SHARE


def queue_history(*, user: User, size: int = 30) -> list[QueueChange]:
    """Return the latest changes of the queue by users, newest first.

    Details that this user cannot see are left out.
    """
    events = list(Event.objects.filter(kind__in=(MOVED, SET, SHARE)).order_by("-id")[: 3 * size])
    scope = scope_of(user)
    of_requests = []
    for event in events:
        if event.kind != SHARE:
            of_requests.append(event.target_id)
    requests = Request.objects.visible_to(user).filter(pk__in=of_requests)
    visible = {(False, str(pk)) for pk in requests.values_list("pk", flat=True)}
    shares = visible_experiments(user).values_list("pk", flat=True)
    visible |= {(True, str(pk)) for pk in shares}
    changes = []
    for event in events:
        ranks = event.data.get("rank_old"), event.data.get("rank_new")
        if scope.sees_all or (event.kind == SHARE, event.target_id) in visible:
            changes.append(QueueChange(event, event.target_label, event.reason))
        elif None not in ranks and ranks[0] != ranks[1]:
            changes.append(QueueChange(event, "", ""))
    return changes[:size]
