"""Effects of a change of the queue before it is saved: ranks, starts and ends.

Nothing is written.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import date, datetime

from django.utils import timezone

from apps.accounts.models import User
from apps.accounts.permissions import scope_of
from apps.production.domain.experiment_shares import read_shares
from apps.production.domain.forecast import Forecast
from apps.production.domain.priority.listing import starts_in_order
from apps.production.domain.priority.queue_forecast import forecast_of_queued
from apps.production.domain.priority.ranks import place_of
from apps.production.domain.priority.rescoring import (
    clear_manual_move,
    keep_manual_moves,
    score_entry,
)
from apps.production.domain.slack import Slack, slack_of
from apps.production.models import QueueEntry, Request


@dataclass(frozen=True)
class RankChange:
    """A request whose rank would change, with its current and its new rank."""

    request: Request
    now: int
    then: int


@dataclass(frozen=True)
class Shift(RankChange):
    """A request whose rank or forecast would change."""

    forecast_now: Forecast
    forecast_then: Forecast
    slack_now: Slack | None
    slack_then: Slack | None

    @property
    def end_now(self) -> date | None:
        return self.forecast_now.end.likely if self.forecast_now.end else None

    @property
    def end_then(self) -> date | None:
        return self.forecast_then.end.likely if self.forecast_then.end else None

    @property
    def start_now(self) -> date | None:
        return self.forecast_now.start.likely if self.forecast_now.start else None

    @property
    def start_then(self) -> date | None:
        if not self.forecast_then.start:
            return None
        return self.forecast_then.start.likely


def if_level(
    request: Request, *, priority_class: str | None, priority: int | None, at: datetime
) -> list[Shift]:
    """Return the shifts under another class or number; None keeps the current one.

    The manual position is discarded.
    """
    now = _queue()
    then = [copy(entry) for entry in now]
    for entry in then:
        if entry.pk == request.pk:
            entry.request = copy(entry.request)
            if priority_class is None:
                entry.request.priority_class = request.priority_class
            else:
                entry.request.priority_class = priority_class
            if priority is None:
                entry.request.priority = request.priority
            else:
                entry.request.priority = priority
            clear_manual_move(entry)
            score_entry(entry, read_shares(), at)
        elif request.pk in {entry.ahead_of_id, entry.behind_id}:
            entry.ahead_of_id = entry.behind_id = None
    keep_manual_moves(then)
    return _shifts(now, sorted(then, key=place_of), at=at)


def if_moved(request: Request, *, to_rank: int, at: datetime) -> list[Shift]:
    """Return the shifts if a request moved to a rank. The others keep their order."""
    now = _queue()
    then = [entry for entry in now if entry.pk != request.pk]
    then[max(0, to_rank - 1) : max(0, to_rank - 1)] = [
        entry for entry in now if entry.pk == request.pk
    ]
    return _shifts(now, then, at=at)


def if_shares(weights: Mapping[int, int], *, at: datetime) -> list[Shift]:
    """Return the shifts under these weights of all experiments."""
    shares = replace(read_shares(), weights=weights)
    now = _queue()
    then = [copy(entry) for entry in now]
    for entry in then:
        score_entry(entry, shares, at)
    keep_manual_moves(then)
    return _shifts(now, sorted(then, key=place_of), at=at)


def visible_shifts(shifts: Sequence[Shift], user: User) -> list[Shift]:
    scope = scope_of(user)
    return [shift for shift in shifts if scope.sees(shift.request.experiment_id)]


def _queue() -> list[QueueEntry]:
    return sorted(
        QueueEntry.objects.filter(is_queued=True).select_related("request__experiment"),
        key=place_of,
    )


def _shifts(now: Sequence[QueueEntry], then: Sequence[QueueEntry], *, at: datetime) -> list[Shift]:
    """Return the requests that change, in their new order."""
    before = _forecasts_in_order(now, at=at)
    after = _forecasts_in_order(then, at=at)
    ranks = {entry.pk: rank for rank, entry in enumerate(now, start=1)}
    today = timezone.localdate(at)
    shifts = []
    for rank, entry in enumerate(then, start=1):
        deadline = entry.request.deadline
        shift = Shift(
            entry.request,
            ranks[entry.pk],
            rank,
            before[entry.pk],
            after[entry.pk],
            slack_of(deadline, before[entry.pk], today=today),
            slack_of(deadline, after[entry.pk], today=today),
        )
        shifts.append(shift)
    return [
        shift
        for shift in shifts
        if (shift.now, shift.forecast_now.end) != (shift.then, shift.forecast_then.end)
    ]


def _forecasts_in_order(entries: Sequence[QueueEntry], *, at: datetime) -> dict[int, Forecast]:
    """Return the forecasts of queued requests in this order by primary key, in two queries."""
    starts = starts_in_order(((entry.request, entry) for entry in entries), at=at)
    return {entry.pk: forecast_of_queued(entry, starts[entry.pk], at=at) for entry in entries}
