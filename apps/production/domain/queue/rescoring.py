"""Keeping the score of each request: as it enters, changes or leaves, and of all of them from time to time."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import Experiment
from apps.production.domain.content.model import RequestContent
from apps.production.domain.content.stages import content_of, with_stages
from apps.production.domain.estimates.past import estimate_for
from apps.production.domain.queue.expected_start import count_starts
from apps.production.domain.queue.ranks import SCORED, is_in_line, place_of
from apps.production.domain.queue.score import Facts, as_data, sort_key, terms_of, total
from apps.production.enums import RequestState
from apps.production.models import DEFAULT_WEIGHT, ExperimentShare, QueueEntry, QueueState, Request, ShareUse

#: An estimate of the size is made anew after so long, as there are more past jobs then.
SIZE_HOLDS = timedelta(days=1)
#: At most so many in one go of `rescore_all`.
MOST_SIZED = 50
#: And so many that came past the services get an entry in one go.
MOST_MISSING = 300


@dataclass(frozen=True)
class Shares:
    """Each experiment's part of production that it should have, and that it used, by primary key."""

    weights: Mapping[int, int]
    used: Mapping[int, int]
    used_days: int = 0
    as_of: datetime | None = None

    def share(self, experiment_id: int) -> float:
        return _part(self.weights.get(experiment_id, 0), sum(self.weights.values()))

    def used_part(self, experiment_id: int) -> float | None:
        """Return the part of what all used; None where nothing was."""
        everything = sum(self.used.values())
        return _part(self.used.get(experiment_id, 0), everything) if everything else None


def _part(one: int, everything: int) -> float:
    return one / everything if everything else 0.0


def read_shares() -> Shares:
    """Return the shares of all experiments, and what of them was used."""
    set_ = dict(ExperimentShare.objects.values_list("experiment_id", "weight"))
    weights = {pk: set_.get(pk, DEFAULT_WEIGHT) for pk in Experiment.objects.values_list("pk", flat=True)}
    uses = list(ShareUse.objects.all())
    used = {use.experiment_id: use.core_seconds for use in uses}
    return Shares(weights, used, max((use.days for use in uses), default=0), min((u.as_of for u in uses), default=None))


def lock_queue() -> QueueState:
    """Hold the queue until the transaction ends. Whoever holds requests too holds them first."""
    QueueState.objects.get_or_create(pk=1)
    return QueueState.objects.select_for_update().get(pk=1)


@transaction.atomic
def update_entry(*, request: Request, at: datetime) -> QueueEntry | None:
    """Bring the entry of a request, whose row the caller holds, up to date; one that is past production has none."""
    lock_queue()
    if request.state not in SCORED:
        QueueEntry.objects.filter(pk=request.pk).delete()
        return None
    entry = QueueEntry.objects.filter(pk=request.pk).first() or QueueEntry(request=request, tie=float(request.pk))
    entry.request = request
    if not entry.is_queued and is_in_line(request) and request.state == RequestState.QUEUED:
        clear_manual_move(entry)
    _size(entry, at)
    score_entry(entry, read_shares(), at)
    entry.save()
    return entry


@transaction.atomic
def reset_position(*, request: Request) -> None:
    """Forget where the request was moved by hand, and that others were to stay ahead of it or behind it."""
    lock_queue()
    release_neighbours(request)
    entry = QueueEntry.objects.select_related("request").filter(pk=request.pk).first()
    if entry is not None:
        clear_manual_move(entry)
        entry.save()


def release_neighbours(request: Request) -> None:
    """Who was put ahead of this one or behind it keeps its points, but no longer goes where it goes."""
    QueueEntry.objects.filter(ahead_of=request).update(ahead_of=None)
    QueueEntry.objects.filter(behind=request).update(behind=None)


def clear_manual_move(entry: QueueEntry) -> None:
    """Let the score alone decide."""
    entry.hand_points, entry.hand_by, entry.hand_at, entry.hand_reason = 0.0, "", None, ""
    entry.ahead_of_id = entry.behind_id = None
    entry.tie = float(entry.request_id)


@transaction.atomic
def rescore_all(*, at: datetime) -> int:
    """Score every entry anew and keep the promises of moves by hand; return how many changed."""
    _add_missing(at)
    return rescore_entries(at=at)


@transaction.atomic
def rescore_entries(*, at: datetime) -> int:
    """Do the same for the entries that are there."""
    state = lock_queue()
    shares, entries = read_shares(), list(QueueEntry.objects.select_related("request__experiment"))
    stale = [entry for entry in entries if _is_stale(entry, at)][:MOST_SIZED]
    _size_many(stale, at)
    before = {entry.pk: _figures(entry) for entry in entries}
    for entry in entries:
        score_entry(entry, shares, at)
    keep_promises(entries)
    changed = [entry for entry in entries if before[entry.pk] != _figures(entry) or entry in stale]
    QueueEntry.objects.bulk_update(changed, _WRITTEN, batch_size=500)
    state.scored_at = at
    count_starts(state, at=at)
    state.save(update_fields=["scored_at", "starts", "starts_days"])
    return len(changed)


_WRITTEN = ["is_queued", "points", "terms", "hand_points", "sort_key", "core_seconds", "days", "size_basis", "sized_at"]
_WRITTEN += ["sized_version", "tie"]


def _figures(entry: QueueEntry) -> tuple[object, ...]:
    return entry.is_queued, entry.points, entry.terms, entry.hand_points, entry.sort_key, entry.tie


def _add_missing(at: datetime) -> None:
    """Give entries to those that came into the queue past the services, and take them from those that left it so."""
    QueueEntry.objects.exclude(request__state__in=sorted(SCORED)).delete()
    missing = Request.objects.filter(state__in=sorted(SCORED), queue_entry=None).order_by("pk")
    for request in missing.select_for_update(of=("self",))[:MOST_MISSING]:
        update_entry(request=request, at=at)


def keep_promises(entries: Iterable[QueueEntry]) -> None:
    """Move those by hand on that would fall behind whom they were put ahead of, or pass whom they were put behind.

    Each comes next to the other, and of several the one that was moved last comes nearest.
    """
    by_pk = {entry.pk: entry for entry in entries if entry.is_queued}
    nearest: dict[tuple[int, float], float] = {}
    done: set[int] = set()

    def keep(entry: QueueEntry) -> None:
        other = by_pk.get(entry.ahead_of_id or entry.behind_id or 0)
        if other is None or entry.pk in done:
            return
        done.add(entry.pk)
        keep(other)
        side = -math.inf if entry.ahead_of_id else math.inf
        if (place_of(entry) < place_of(other)) == (side < 0):
            return
        entry.hand_points += other.sort_key - entry.sort_key
        entry.sort_key = other.sort_key
        entry.tie = nearest[other.pk, side] = math.nextafter(nearest.get((other.pk, side), other.tie), side)

    for entry in sorted(
        by_pk.values(), key=lambda each: each.hand_at.timestamp() if each.hand_at else 0.0, reverse=True
    ):
        keep(entry)


def facts_of(entry: QueueEntry, shares: Shares) -> Facts:
    """Return what the score of an entry's request is counted from."""
    request = entry.request
    return Facts(
        priority_class=request.priority_class,
        number=request.priority,
        asked=request.requested_priority,
        deadline=request.deadline,
        takes_days=entry.days,
        core_seconds=entry.core_seconds,
        size_basis=entry.size_basis,
        experiment=request.experiment.name,
        share=shares.share(request.experiment_id),
        used=shares.used_part(request.experiment_id),
        used_days=shares.used_days,
    )


def score_entry(entry: QueueEntry, shares: Shares, at: datetime) -> None:
    """Count terms, points and key of an entry anew, without saving it."""
    terms = terms_of(facts_of(entry, shares), today=timezone.localdate(at))
    entry.is_queued = is_in_line(entry.request)
    entry.terms, entry.points = as_data(terms), total(terms)
    entry.sort_key = sort_key(entry.points + entry.hand_points, entry.request.submitted_at or at)


def _is_stale(entry: QueueEntry, at: datetime) -> bool:
    return entry.sized_version != entry.request.version or at - entry.sized_at >= SIZE_HOLDS


def _size(entry: QueueEntry, at: datetime) -> None:
    if entry.sized_version is None or _is_stale(entry, at):
        _write_size(entry, content_of(entry.request), at)


def _size_many(entries: list[QueueEntry], at: datetime) -> None:
    requests = with_stages(Request.objects.filter(pk__in=[entry.pk for entry in entries])).in_bulk()
    for entry in entries:
        _write_size(entry, content_of(requests[entry.pk]), at)


def _write_size(entry: QueueEntry, content: RequestContent, at: datetime) -> None:
    """Take the size from the estimate, else from what is asked for, one core a job."""
    found = estimate_for(content, entry.request.experiment, at)
    asked = [stage.jobs * stage.wall_seconds for stage in content.stages if stage.jobs and stage.wall_seconds]
    entry.days = found.days.mid if found.days else None
    if found.core_seconds:
        entry.core_seconds, entry.size_basis = found.core_seconds.mid, f"{found.past_jobs:,} past jobs of its stages"
    elif content.stages and len(asked) == len(content.stages):
        entry.core_seconds, entry.size_basis = float(sum(asked)), "its requested jobs and wall time"
    else:
        entry.core_seconds, entry.size_basis = None, ""
    entry.sized_at, entry.sized_version = at, entry.request.version
