"""Update scores: of one request when it changes, and of all requests periodically."""

import math
from collections.abc import Iterable
from datetime import datetime, timedelta
from operator import attrgetter

from django.db import transaction
from django.utils import timezone

from apps.core.domain.bulk import update_objects
from apps.production.domain.content.stages import content_of, with_stages
from apps.production.domain.estimates.past import estimate_for
from apps.production.domain.experiment_shares import Shares, read_shares
from apps.production.domain.priority.expected_start import count_starts
from apps.production.domain.priority.free_clusters import take_room
from apps.production.domain.priority.ranks import has_rank, queue_order
from apps.production.domain.priority.score import (
    ScoreFacts,
    as_data,
    score_terms,
    sort_key,
    total_score,
)
from apps.production.enums import SCORED, RequestState
from apps.production.models import QueueEntry, QueueState, Request

#: How long an estimated size stays valid. Later there are more past jobs to estimate from.
SIZE_LIFETIME = timedelta(days=1)
#: How many sizes are estimated, and how many missing entries are added, per run of `rescore_all`.
MOST_SIZED = 50
MOST_MISSING = 300


def lock_queue() -> QueueState:
    """Lock the queue until the transaction ends. Lock requests, if any, before the queue."""
    state, _ = QueueState.objects.select_for_update().get_or_create(pk=1)
    return state


@transaction.atomic
def update_entry(*, request: Request, at: datetime) -> QueueEntry | None:
    """Update the entry of a request, which the caller has locked.

    The entry is deleted once the request is past production.
    """
    queue_state = lock_queue()
    if request.state not in SCORED:
        QueueEntry.objects.filter(pk=request.pk).delete()
        return None
    entry = QueueEntry.objects.filter(pk=request.pk).first()
    is_new = entry is None
    if entry is None:
        entry = QueueEntry(tie=float(request.pk))
    entry.request = request
    if not entry.is_queued and request.state == RequestState.QUEUED:
        clear_manual_move(entry)
        # A worker stores this again within seconds, for the whole queue.
        entry.starts_on = take_room(queue_state, request, at=at)
    shares = read_shares()
    if entry.sized_version is None or _is_stale(entry, at):
        _estimate_size(entry, request, shares, at)
    score_entry(entry, shares, at)
    entry.save(force_insert=is_new)
    return entry


@transaction.atomic
def reset_position(*, request: Request) -> None:
    """Discard the manual position of a request, and positions of others relative to it."""
    lock_queue()
    release_neighbours(request)
    entry = QueueEntry.objects.select_related("request").filter(pk=request.pk).first()
    if entry is not None:
        clear_manual_move(entry)
        entry.save()


def release_neighbours(request: Request) -> None:
    """Detach requests that were moved ahead of this one or behind it. They keep their points."""
    QueueEntry.objects.filter(ahead_of=request).update(ahead_of=None)
    QueueEntry.objects.filter(behind=request).update(behind=None)


def clear_manual_move(entry: QueueEntry) -> None:
    entry.hand_points = 0.0
    entry.hand_by = ""
    entry.hand_at = None
    entry.hand_reason = ""
    entry.ahead_of_id = entry.behind_id = None
    entry.tie = float(entry.request_id)


@transaction.atomic
def rescore_all(*, at: datetime) -> int:
    """Add missing entries, delete stale ones, and rescore all. Return how many changed.

    Manual moves are kept.
    """
    QueueEntry.objects.exclude(request__state__in=sorted(SCORED)).delete()
    missing = Request.objects.filter(state__in=sorted(SCORED), queue_entry=None).order_by("pk")
    for request in missing.select_for_update(of=("self",))[:MOST_MISSING]:
        update_entry(request=request, at=at)
    return rescore_entries(at=at)


_SCORE_FIELDS = ["is_queued", "points", "terms", "hand_points", "sort_key", "tie"]
_SIZE_FIELDS = [
    "core_seconds",
    "days_low",
    "days",
    "days_high",
    "size_basis",
    "size_by_limit",
    "needed_change",
    "sized_at",
    "sized_version",
]


@transaction.atomic
def rescore_entries(*, at: datetime) -> int:
    """Rescore the existing entries and keep manual moves. Return how many changed."""
    state = lock_queue()
    shares = read_shares()
    entries = list(QueueEntry.objects.select_related("request__experiment"))
    stale = [entry for entry in entries if _is_stale(entry, at)][:MOST_SIZED]
    requests = with_stages(Request.objects.filter(pk__in=[entry.pk for entry in stale])).in_bulk()
    for entry in stale:
        _estimate_size(entry, requests[entry.pk], shares, at)
    score_of = attrgetter(*_SCORE_FIELDS)
    before = {entry.pk: score_of(entry) for entry in entries}
    for entry in entries:
        score_entry(entry, shares, at)
    keep_manual_moves(entries)
    changed = [entry for entry in entries if score_of(entry) != before[entry.pk] or entry in stale]
    update_objects(changed, [*_SCORE_FIELDS, *_SIZE_FIELDS])
    state.scored_at = at
    count_starts(state, at=at)
    state.save(update_fields=["scored_at", "starts", "starts_days"])
    return len(changed)


def keep_manual_moves(entries: Iterable[QueueEntry]) -> None:
    """Restore the order of manually moved entries.

    An entry that fell behind the entry it was moved ahead of, or passed the one it was moved
    behind, is placed next to it. If there are several, the one moved last is the nearest.
    """
    by_pk = {}
    for entry in entries:
        if entry.is_queued:
            by_pk[entry.pk] = entry
    nearest: dict[tuple[int, float], float] = {}
    done: set[int] = set()

    def keep(entry: QueueEntry) -> None:
        other = by_pk.get(entry.ahead_of_id or entry.behind_id or 0)
        if other is None or entry.pk in done:
            return
        done.add(entry.pk)
        keep(other)
        side = -math.inf if entry.ahead_of_id else math.inf
        if (queue_order(entry) < queue_order(other)) == (side < 0):
            return
        entry.hand_points += other.sort_key - entry.sort_key
        entry.sort_key = other.sort_key
        entry.tie = nearest[other.pk, side] = math.nextafter(
            nearest.get((other.pk, side), other.tie), side
        )

    def moved_at(entry: QueueEntry) -> float:
        return entry.hand_at.timestamp() if entry.hand_at else 0

    for entry in sorted(by_pk.values(), key=moved_at, reverse=True):
        keep(entry)


@transaction.atomic
def forget_sizes(*, experiment_id: int) -> None:
    """Mark the sizes of an experiment's entries for a new estimate, as its past jobs changed."""
    lock_queue()
    QueueEntry.objects.filter(request__experiment=experiment_id).update(sized_version=0)


def score_facts(entry: QueueEntry, shares: Shares) -> ScoreFacts:
    """Return the facts from which the score of an entry is computed."""
    request = entry.request
    return ScoreFacts(
        priority_class=request.priority_class,
        number=request.priority,
        requested_priority=request.requested_priority,
        deadline=request.deadline,
        takes_days=entry.days,
        core_seconds=entry.core_seconds,
        size_basis=entry.size_basis,
        experiment_name=request.experiment.name,
        share=shares.share(request.experiment_id),
        used=shares.used_part(request.experiment_id),
        used_days=shares.used_days,
    )


def score_entry(entry: QueueEntry, shares: Shares, at: datetime) -> None:
    """Compute terms, points and sort key of an entry, without saving it."""
    terms = score_terms(score_facts(entry, shares), today=timezone.localdate(at))
    entry.is_queued = has_rank(entry.request)
    entry.terms = as_data(terms)
    entry.points = total_score(terms)
    entry.sort_key = sort_key(entry.points + entry.hand_points, entry.request.submitted_at or at)


def _is_stale(entry: QueueEntry, at: datetime) -> bool:
    return entry.sized_version != entry.request.version or at - entry.sized_at >= SIZE_LIFETIME


def _estimate_size(entry: QueueEntry, request: Request, shares: Shares, at: datetime) -> None:
    """Set size and duration from the estimate, and the first limit that most jobs will exceed."""
    own = request.key if request.work_began_at else ""
    estimate = estimate_for(
        content_of(request), entry.request.experiment, at, shares=shares, own=own
    )
    entry.needed_change = estimate.needed_change
    days = estimate.days
    entry.days_low, entry.days, entry.days_high = (
        (days.low, days.mid, days.high) if days else (None, None, None)
    )
    size = estimate.size
    entry.core_seconds = size.core_seconds if size else None
    entry.size_basis = size.basis if size else ""
    entry.size_by_limit = size is None or size.by_limit
    entry.sized_at = at
    entry.sized_version = entry.request.version
