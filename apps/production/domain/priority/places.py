"""The places of the queue, and where another request would stand among them."""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.utils import timezone

from apps.production.domain.experiment_shares import Shares, read_shares
from apps.production.domain.priority.free_clusters import Starter
from apps.production.domain.priority.pace import QueuedWork, countable_size, work_ahead
from apps.production.domain.priority.rescoring import score_facts
from apps.production.domain.priority.score import score_terms, sort_key, total_score
from apps.production.enums import RequestState
from apps.production.models import QueueEntry


@dataclass(frozen=True)
class Place:
    """How many requests would be ahead of one, and the work of the ones that can start.

    `key` orders places. `index` is the index of the first entry of the queue behind it.
    """

    key: tuple[float, float]
    index: int
    ahead: int
    work_ahead: QueuedWork


@dataclass(frozen=True)
class QueuedEntry:
    """An entry of the queue: whether it can start, and the cluster that starts it now, if any."""

    pk: int
    can_start: bool
    starts_on: str


@dataclass(frozen=True)
class QueuePlaces:
    """The places of the queue in order, and the work before each of the requests that can start.

    `starters` are the entries that clusters start now. Two aggregates per entry in the database
    took 27 % of the CPU time of a desk of 25 requests; counting here takes 5 %.
    """

    shares: Shares
    entries: Sequence[QueuedEntry]
    keys: Sequence[tuple[float, float]]
    work_before: Sequence[QueuedWork]
    index: Mapping[int, int]
    starters: Sequence[Starter]

    def find_place(
        self, entry: QueueEntry, priority_class: str, number: int | None, at: datetime
    ) -> Place:
        """Return the place of an entry if it had this class and number."""
        facts = replace(
            score_facts(entry, self.shares), priority_class=priority_class, number=number
        )
        points = total_score(score_terms(facts, today=timezone.localdate(at)))
        key = sort_key(points, entry.request.submitted_at or at)
        place_key = (-key, float(entry.request_id or math.inf))
        index = bisect_left(self.keys, place_key)
        ahead = index
        before = self.work_before[index]
        own = self.index.get(entry.request_id)
        if own is not None and own < index:
            # The request itself is not ahead of its new place.
            ahead -= 1
            before -= self.work_before[own + 1] - self.work_before[own]
        return Place(place_key, index, ahead, before)


def read_places() -> QueuePlaces:
    """Return the places of the queue, in two queries."""
    queue = QueueEntry.objects.filter(is_queued=True).order_by("-sort_key", "tie", "pk")
    entries = []
    keys: list[tuple[float, float]] = []
    sizes = []
    index = {}
    starters = []
    rows = queue.values_list(
        "pk",
        "sort_key",
        "tie",
        "request__state",
        "request__experiment__key",
        "core_seconds",
        "request__arguments__stop_on",
        "starts_on",
    )
    for pk, sort_points, tie, state, experiment_key, size, stop_on, starts_on in rows:
        can_start = state == RequestState.QUEUED
        if starts_on:
            starters.append(Starter(pk, len(keys), starts_on, experiment_key))
        index[pk] = len(keys)
        entries.append(QueuedEntry(pk, can_start, starts_on))
        keys.append((-sort_points, tie))
        sizes.append((can_start, countable_size(size, stop_on)))
    return QueuePlaces(read_shares(), entries, keys, work_ahead(sizes), index, starters)
