"""Manual moves of requests in the queue: to a rank, with a reason, until the move is undone.

A move adds or subtracts the points needed for the rank. The request then stays ahead of the request
it was moved ahead of, or behind the request it was moved behind, until a user moves either of them
or sets its priority.
"""

from datetime import datetime

from django.db import transaction

from apps.accounts.models import User
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed, StaleState
from apps.production.domain.priority.ranks import has_rank, queue_order, rank_of
from apps.production.domain.priority.rescoring import (
    clear_manual_move,
    lock_queue,
    release_neighbours,
)
from apps.production.domain.priority.score import sort_key
from apps.production.domain.reasons import checked_reason, reason_problems
from apps.production.models import QueueEntry, QueueState, Request
from apps.production.permissions import may_reorder_queue


@transaction.atomic
def move_in_queue(
    *,
    request: Request,
    to_rank: int,
    by: User,
    at: datetime,
    reason: str,
    version: int | None = None,
    seen_rank: int | None = None,
) -> int:
    """Move a request to a rank, and return its previous rank. All others keep their order.

    `version` is the version of the queue and `seen_rank` the rank that the user saw. Raises
    `NotAllowed`, `InvalidTransition` if it is not in the queue, `InvalidFields`, `StaleState`.
    """
    state = _lock(request, by, version)
    entries = sorted(
        QueueEntry.objects.filter(is_queued=True).select_related("request"), key=queue_order
    )
    old = next(
        (rank for rank, entry in enumerate(entries, start=1) if entry.pk == request.pk), None
    )
    if old is None:
        raise InvalidTransition(f"{request} has no rank yet. Try again in a minute.")
    if seen_rank not in {None, old}:
        raise StaleState(
            f"{request} moved from rank {seen_rank} to {old} in the meantime. Your move was "
            "not made."
        )
    problems = reason_problems(reason)
    if not 1 <= to_rank <= len(entries):
        problems["to_rank"] = [f"Enter a rank from 1 to {len(entries):,}."]
    elif to_rank == old:
        problems["to_rank"] = [f"It already has rank {old}."]
    if problems:
        raise InvalidFields(problems)
    entry = entries.pop(old - 1)
    above = entries[to_rank - 2] if to_rank > 1 else None
    below = entries[to_rank - 1] if to_rank <= len(entries) else None
    release_neighbours(entry.request)
    old_key = entry.sort_key
    entry.sort_key, entry.tie = _key_between(entry, above, below, entries)
    entry.hand_points += entry.sort_key - old_key
    entry.ahead_of_id = below.pk if to_rank < old and below else None
    entry.behind_id = above.pk if to_rank > old and above else None
    entry.hand_by = by.username
    entry.hand_at = at
    entry.hand_reason = reason.strip()
    entry.save()
    data = {"rank_old": old, "rank_new": to_rank}
    publish(kind="request.moved", target=request, by=by, at=at, reason=reason.strip(), data=data)
    note_change(state, by=by, at=at, what=f"{request} was moved from rank {old} to {to_rank}")
    return old


@transaction.atomic
def undo_manual_move(
    *, request: Request, by: User, at: datetime, reason: str, version: int | None = None
) -> int | None:
    """Return a request to the place given by its score, and return its new rank.

    Raises the errors of `move_in_queue`, and `InvalidTransition` if it was not moved.
    """
    state = _lock(request, by, version)
    entry = (
        QueueEntry.objects.select_related("request")
        .filter(pk=request.pk)
        .exclude(hand_at=None)
        .first()
    )
    if entry is None:
        raise InvalidTransition(f"{request} has no manual position.")
    reason = checked_reason(reason)
    old = rank_of(request)
    release_neighbours(request)
    clear_manual_move(entry)
    entry.sort_key = sort_key(entry.points, entry.request.submitted_at or at)
    entry.save()
    new = rank_of(request)
    data = {"rank_old": old, "rank_new": new, "by_score": True}
    publish(kind="request.moved", target=request, by=by, at=at, reason=reason, data=data)
    note_change(state, by=by, at=at, what=f"the position of {request} was reset")
    return new


def check_version(state: QueueState, version: int | None) -> None:
    """Raise `StaleState` with the last change if the user saw an earlier version of the queue."""
    if version not in {None, state.version}:
        raise StaleState(
            f"{state.changed_by} changed the queue in the meantime: {state.change}. Your "
            "change was not made."
        )


def note_change(state: QueueState, *, by: User, at: datetime, what: str) -> None:
    """Record the last change of the queue by a user."""
    state.version += 1
    state.changed_by = by.username
    state.changed_at = at
    state.change = what[:300]
    state.save(update_fields=["version", "changed_by", "changed_at", "change"])


def _lock(request: Request, by: User, version: int | None) -> QueueState:
    """Lock request and queue, and check that this user may move the request now."""
    current = Request.objects.select_for_update().get(pk=request.pk)
    if not may_reorder_queue(by, current):
        raise NotAllowed("Only approvers other than the requester can move it.")
    state = lock_queue()
    check_version(state, version)
    if not has_rank(current):
        raise InvalidTransition(
            f"{request} is “{current.get_state_display()}” and not in the queue."
        )
    return state


def _key_between(
    entry: QueueEntry, above: QueueEntry | None, below: QueueEntry | None, others: list[QueueEntry]
) -> tuple[float, float]:
    """Return a sort key and tie that lie between the keys of two adjacent entries."""
    if above is None or below is None:
        near = above or below
        return (near.sort_key + (1 if above is None else -1) if near else entry.sort_key), float(
            entry.pk
        )
    middle = round((above.sort_key + below.sort_key) / 2, 6)
    if above.sort_key > middle > below.sort_key:
        return middle, float(entry.pk)
    if above.sort_key > below.sort_key:
        return below.sort_key, below.tie - 1
    if not above.tie < (above.tie + below.tie) / 2 < below.tie:
        equals = [other for other in others if other.sort_key == below.sort_key]
        for number, other in enumerate(equals):
            other.tie = float(number)
        QueueEntry.objects.bulk_update(equals, ["tie"])
    return below.sort_key, (above.tie + below.tie) / 2
