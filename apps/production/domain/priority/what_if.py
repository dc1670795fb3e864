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
from apps.production.domain.priority.ranks import queue_order
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

    @property
    def changes_anything(self) -> bool:
        """Whether the rank or the expected end changes."""
        return self.now != self.then or self.forecast_now.end != self.forecast_then.end


def if_level(
    request: Request, *, priority_class: str | None, priority: int | None, at: datetime
) -> list[Shift]:
    """Return the shifts under another class or number; None keeps the current one.

    The manual position is discarded.
    """
    if priority_class is None:
        priority_class = request.priority_class
    if priority is None:
        priority = request.priority

    entries = _queue()
    changed = [copy(entry) for entry in entries]
    for entry in changed:
        if entry.pk == request.pk:
            entry.request = copy(entry.request)
            entry.request.priority_class = priority_class
            entry.request.priority = priority
            clear_manual_move(entry)
            score_entry(entry, read_shares(), at)
        elif request.pk in {entry.ahead_of_id, entry.behind_id}:
            entry.ahead_of_id = None
            entry.behind_id = None
    keep_manual_moves(changed)
    return _shifts(entries, sorted(changed, key=queue_order), at=at)


def if_moved(request: Request, *, to_rank: int, at: datetime) -> list[Shift]:
    """Return the shifts if a request moved to a rank. The others keep their order."""
    entries = _queue()
    moved = [entry for entry in entries if entry.pk == request.pk]
    others = [entry for entry in entries if entry.pk != request.pk]
    index = max(0, to_rank - 1)
    return _shifts(entries, [*others[:index], *moved, *others[index:]], at=at)


def if_shares(weights: Mapping[int, int], *, at: datetime) -> list[Shift]:
    """Return the shifts under these weights of all experiments."""
    shares = replace(read_shares(), weights=weights)
    entries = _queue()
    changed = [copy(entry) for entry in entries]
    for entry in changed:
        score_entry(entry, shares, at)
    keep_manual_moves(changed)
    return _shifts(entries, sorted(changed, key=queue_order), at=at)


def visible_shifts(shifts: Sequence[Shift], user: User) -> list[Shift]:
    scope = scope_of(user)
    return [shift for shift in shifts if scope.sees(shift.request.experiment_id)]


def _queue() -> list[QueueEntry]:
    return sorted(
        QueueEntry.objects.filter(is_queued=True).select_related("request__experiment"),
        key=queue_order,
    )


def _shifts(
    entries: Sequence[QueueEntry], reordered: Sequence[QueueEntry], *, at: datetime
) -> list[Shift]:
    """Return the requests that change if the queue is reordered, in their new order."""
    before = _forecasts_in_order(entries, at=at)
    after = _forecasts_in_order(reordered, at=at)
    ranks = {entry.pk: rank for rank, entry in enumerate(entries, start=1)}
    today = timezone.localdate(at)
    shifts = []
    for rank, entry in enumerate(reordered, start=1):
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
    return [shift for shift in shifts if shift.changes_anything]


def _forecasts_in_order(entries: Sequence[QueueEntry], *, at: datetime) -> dict[int, Forecast]:
    """Return the forecasts of queued requests in this order by primary key, in two queries."""
    starts = starts_in_order(((entry.request, entry) for entry in entries), at=at)
    return {entry.pk: forecast_of_queued(entry, starts[entry.pk], at=at) for entry in entries}
