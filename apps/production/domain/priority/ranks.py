"""The order of the queue: which requests are in it, and at which rank.

Code that starts jobs uses `startable_requests`.
"""

from typing import Any

from django.db.models import F, OrderBy, Q

from apps.production.enums import RequestState
from apps.production.models import QueueEntry, Request, RequestQuerySet

RANKED = Q(state=RequestState.QUEUED) | Q(state=RequestState.ON_HOLD, held_from=RequestState.QUEUED)


def by_place(path: str = "") -> tuple[OrderBy, ...]:
    """Return the ordering of the queue. `path` leads to the request, such as `request__`.

    A request without an entry comes last. It gets an entry within a minute.
    """
    return (
        F(f"{path}queue_entry__sort_key").desc(nulls_last=True),
        F(f"{path}queue_entry__tie").asc(nulls_last=True),
        F(f"{path}submitted_at").asc(),
        F(f"{path}pk").asc(),
    )


def startable_requests() -> RequestQuerySet[Request]:
    """Return the requests that can be started, in order of rank, without those on hold."""
    return Request.objects.filter(state=RequestState.QUEUED).order_by(*by_place())


def ranked_requests() -> RequestQuerySet[Request]:
    """Return the requests with a rank, in order: queued ones, and those put on hold there."""
    return Request.objects.filter(RANKED).order_by(*by_place())


def has_rank(request: Request) -> bool:
    held = request.state == RequestState.ON_HOLD and request.held_from == RequestState.QUEUED
    return held or request.state == RequestState.QUEUED


def queue_ranks() -> dict[int, int]:
    """Return the rank of each request in the queue by primary key. Rank 1 is next."""
    return {
        pk: rank for rank, pk in enumerate(ranked_requests().values_list("pk", flat=True), start=1)
    }


def rank_of(request: Request) -> int | None:
    """Return the rank of a request; None if it is not in the queue or has no score yet."""
    entry = None
    if has_rank(request):
        entry = QueueEntry.objects.filter(request=request, is_queued=True).first()
    return None if entry is None else entries_ahead(entry).count() + 1


def format_ordinal(rank: int) -> str:
    """Return `1` as `1st`, `12` as `12th`."""
    if rank % 100 in (11, 12, 13):
        suffix = "th"
    else:
        suffix = {1: "st", 2: "nd", 3: "rd"}.get(rank % 10, "th")
    return f"{rank}{suffix}"


def entries_ahead(entry: QueueEntry) -> Any:
    """Return the entries ahead of this one."""
    before = Q(sort_key__gt=entry.sort_key) | Q(sort_key=entry.sort_key, tie__lt=entry.tie)
    same = Q(sort_key=entry.sort_key, tie=entry.tie, pk__lt=entry.pk)
    return QueueEntry.objects.filter(before | same, is_queued=True)


def queue_order(entry: QueueEntry) -> tuple[float, float, int]:
    """Return a sort key that orders entries as the database does."""
    return -entry.sort_key, entry.tie, entry.pk
