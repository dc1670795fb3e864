"""Reading the queue: who is in it, in which order, and at which rank. Nothing here counts a score.

`startable` and `by_place` are what whoever starts or sends jobs goes by.
"""

from collections.abc import Iterable
from typing import Any

from django.db.models import F, OrderBy, Q

from apps.production.enums import RequestState
from apps.production.models import QueueEntry, Request, RequestQuerySet

#: These have a score: they are signed, and jobs of them may be to start.
SCORED = frozenset(
    {RequestState.APPROVED, RequestState.QUEUED, RequestState.TESTING, RequestState.RUNNING, RequestState.ON_HOLD}
)
IN_LINE = Q(state=RequestState.QUEUED) | Q(state=RequestState.ON_HOLD, held_from=RequestState.QUEUED)


def by_place(path: str = "") -> tuple[OrderBy, ...]:
    """Return an ordering, first to be produced first; `path` leads to the request, such as `request__`.

    One without an entry (it gets one within a minute) comes last.
    """
    return (
        F(f"{path}queue_entry__sort_key").desc(nulls_last=True),
        F(f"{path}queue_entry__tie").asc(nulls_last=True),
        F(f"{path}submitted_at").asc(),
        F(f"{path}pk").asc(),
    )


def startable() -> RequestQuerySet[Request]:
    """Return the requests in the queue that may be started, first to be produced first; held ones are left out."""
    return Request.objects.filter(state=RequestState.QUEUED).order_by(*by_place())


def in_line() -> RequestQuerySet[Request]:
    """Return all that have a rank, in order: those in the queue, and those held there, which keep their place."""
    return Request.objects.filter(IN_LINE).order_by(*by_place())


def is_in_line(request: Request) -> bool:
    held = request.state == RequestState.ON_HOLD and request.held_from == RequestState.QUEUED
    return held or request.state == RequestState.QUEUED


def queue_ranks() -> dict[int, int]:
    """Return the rank of each request in the queue, by its primary key: 1 is next."""
    return {pk: rank for rank, pk in enumerate(in_line().values_list("pk", flat=True), start=1)}


def rank_of(request: Request) -> int | None:
    """Return the rank of one request; None outside the queue, and where it has no score yet."""
    entry = QueueEntry.objects.filter(request=request, is_queued=True).first() if is_in_line(request) else None
    return None if entry is None else entries_ahead(entry).count() + 1


def entries_ahead(entry: QueueEntry) -> Any:
    """Return the entries that come before this one."""
    before = Q(sort_key__gt=entry.sort_key) | Q(sort_key=entry.sort_key, tie__lt=entry.tie)
    same = Q(sort_key=entry.sort_key, tie=entry.tie, pk__lt=entry.pk)
    return QueueEntry.objects.filter(before | same, is_queued=True)


def sorted_entries(entries: Iterable[QueueEntry]) -> list[QueueEntry]:
    """Return entries as the database orders them."""
    return sorted(entries, key=place_of)


def place_of(entry: QueueEntry) -> tuple[float, float, int]:
    """Return what entries are ordered by, the smallest first."""
    return -entry.sort_key, entry.tie, entry.pk
