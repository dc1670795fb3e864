"""Fair shares of experiments: their use, setting them, and the ranks that other shares or priorities would give."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.db import transaction
from django.db.models import Count, Q
from django.utils import timezone

from apps.accounts.models import Experiment, User
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, NotAllowed
from apps.production.domain.content.model import RequestContent
from apps.production.domain.estimates.figures import Estimate
from apps.production.domain.experiment_shares import Shares, read_shares
from apps.production.domain.forecast import Forecast
from apps.production.domain.priority.listing import starts_behind
from apps.production.domain.priority.manual_moves import check_version, note_change
from apps.production.domain.priority.queue_forecast import forecast_of_queued
from apps.production.domain.priority.ranks import is_in_line
from apps.production.domain.priority.rescoring import (
    facts_of,
    lock_queue,
    rescore_entries,
)
from apps.production.domain.priority.score import sort_key, terms_of, total
from apps.production.domain.priority.what_if import Shift, if_shares
from apps.production.domain.reasons import checked_reason
from apps.production.enums import RequestedPriority, RequestState
from apps.production.models import MAX_WEIGHT, ExperimentShare, QueueEntry, Request
from apps.production.permissions import may_set_shares


@dataclass(frozen=True)
class ShareRow:
    """An experiment's share as a page shows it: weight, the part it should have, and the part it used."""

    experiment: Experiment
    weight: int
    share: float
    used: float | None
    core_seconds: int


def share_rows(shares: Shares | None = None) -> list[ShareRow]:
    """Return all experiments with their current or proposed shares."""
    shares = shares or read_shares()
    return [
        ShareRow(e, shares.weights[e.pk], shares.share(e.pk), shares.used_part(e.pk), shares.used.get(e.pk, 0))
        for e in Experiment.objects.all()
        if e.pk in shares.weights
    ]


@transaction.atomic
def set_shares(
    *, weights: Mapping[int, int], by: User, at: datetime, reason: str, version: int | None = None
) -> list[Experiment]:
    """Set weights by experiment, rescore the queue, and return the experiments whose weight changed.

    `version` is that of the queue, as the user saw it. Raises `NotAllowed`, `InvalidFields`, `StaleState`.
    """
    if not may_set_shares(by):
        raise NotAllowed("Only approvers for all experiments and admins can set shares.")
    state = lock_queue()
    check_version(state, version)
    old, wanted = read_shares(), checked_weights(weights)
    reason = checked_reason(reason)
    new = replace(old, weights=wanted)
    changed = list(Experiment.objects.filter(pk__in=[pk for pk in wanted if wanted[pk] != old.weights[pk]]))
    for experiment in changed:
        values = {"weight": wanted[experiment.pk], "by": by.username, "at": at}
        ExperimentShare.objects.update_or_create(experiment=experiment, defaults=values)
        data = {"share_old": old.share(experiment.pk), "share_new": new.share(experiment.pk)}
        publish(
            kind="share.set",
            target=experiment,
            by=by,
            at=at,
            old=str(old.weights[experiment.pk]),
            new=str(wanted[experiment.pk]),
            reason=reason,
            data=data,
        )
    if changed:
        rescore_entries(at=at)
        note_change(state, by=by, at=at, what=f"shares of {', '.join(e.key for e in changed)} were set")
    return changed


def checked_weights(weights: Mapping[int, int]) -> dict[int, int]:
    """Return the weights of all experiments, with these applied. Raises `InvalidFields` by key of the experiment."""
    now = dict(read_shares().weights)
    keys = dict(Experiment.objects.values_list("pk", "key"))
    problems = {
        keys.get(pk, str(pk)): [f"Enter a whole number from 0 to {MAX_WEIGHT:,}."]
        for pk, weight in weights.items()
        if pk not in now or not 0 <= weight <= MAX_WEIGHT
    }
    wanted = now | dict(weights)
    if not problems and not any(wanted.values()):
        problems["non_field_errors"] = ["At least one experiment must have a share."]
    if problems:
        raise InvalidFields(problems)
    return wanted


def what_if_shares(weights: Mapping[int, int], *, at: datetime) -> tuple[list[ShareRow], list[Shift]]:
    """Return the shares that these weights would give, and what they would change. Raises `InvalidFields`."""
    wanted = checked_weights(weights)
    return share_rows(replace(read_shares(), weights=wanted)), if_shares(wanted, at=at)


def what_if_level(request: Request, *, priority_class: str, number: int | None, at: datetime) -> int | None:
    """Return the rank that a request would have with this class and number; None if it is not in the queue."""
    return _ranks_with(_queued(request), [priority_class], number, at).get(priority_class)


def ranks_by_class(request: Request, *, at: datetime) -> list[tuple[str, int]]:
    """Return the rank that a request would have in each class, most urgent first; empty outside the queue."""
    ranks = _ranks_with(_queued(request), [*reversed(RequestedPriority.values)], request.priority, at)
    return [(RequestedPriority(value).label, rank) for value, rank in ranks.items()]


@dataclass(frozen=True)
class Prospect:
    """What a class would give a request: its rank, and start and end as far as they are known."""

    rank: int
    forecast: Forecast


def prospects_if_approved(request: Request, estimate: Estimate, *, at: datetime) -> dict[str, Prospect]:
    """Return by class what a request with this estimate would have if it were approved now."""
    size, days = estimate.core_seconds, estimate.days
    entry = QueueEntry(
        request=request,
        core_seconds=size.mid if size else None,
        days_low=days.low if days else None,
        days=days.mid if days else None,
        days_high=days.high if days else None,
    )
    return _prospects(entry, RequestedPriority.values, at)


def prospects_in_queue(request: Request, *, at: datetime) -> dict[str, Prospect]:
    """Return what a queued request has in its class, and would have in each higher one; empty if there is none."""
    classes = RequestedPriority.values
    own = classes.index(request.priority_class or RequestedPriority.NORMAL)
    entry: QueueEntry | None = getattr(request, "queue_entry", None)
    if entry is None or not entry.is_queued or not is_in_line(request) or len(classes[own:]) < 2:
        return {}
    return _prospects(entry, classes[own:], at)


def prospects_of_draft(
    experiment: Experiment, content: RequestContent, estimate: Estimate, *, request: Request | None, at: datetime
) -> dict[str, Prospect]:
    """Return by class what a request with this content would have if it were approved in it now."""
    pk = request.pk if request else None
    return prospects_if_approved(Request(pk=pk, experiment=experiment, deadline=content.deadline), estimate, at=at)


def _prospects(entry: QueueEntry, classes: Sequence[str], at: datetime) -> dict[str, Prospect]:
    ahead = _ahead_of(entry, classes, entry.request.priority, at)
    starts = starts_behind(entry.request, [startable for _, startable in ahead.values()], at=at)
    return {
        name: Prospect(before + 1, forecast_of_queued(entry, start, at=at))
        for (name, (before, _)), start in zip(ahead.items(), starts, strict=True)
    }


def _queued(request: Request) -> QueueEntry | None:
    queued = QueueEntry.objects.select_related("request__experiment").filter(pk=request.pk, is_queued=True)
    return queued.first() if is_in_line(request) else None


def _ranks_with(entry: QueueEntry | None, classes: Sequence[str], number: int | None, at: datetime) -> dict[str, int]:
    """Return the rank of an entry with each of these classes, in one query; empty without an entry."""
    return {name: before + 1 for name, (before, _) in _ahead_of(entry, classes, number, at).items()} if entry else {}


def _ahead_of(
    entry: QueueEntry, classes: Sequence[str], number: int | None, at: datetime
) -> dict[str, tuple[int, int]]:
    """Return how many requests would be ahead of an entry in each class, and how many of them can start."""
    facts, today = facts_of(entry, read_shares()), timezone.localdate(at)
    counts = {}
    for place, priority_class in enumerate(classes):
        score = total(terms_of(replace(facts, priority_class=priority_class, number=number), today=today))
        key = sort_key(score, entry.request.submitted_at or at)
        before = Q(sort_key__gt=key) | Q(sort_key=key, tie__lt=float(entry.request_id or math.inf))
        counts[f"ahead_{place}"] = Count("pk", filter=before)
        counts[f"startable_{place}"] = Count("pk", filter=before & Q(request__state=RequestState.QUEUED))
    found = QueueEntry.objects.filter(is_queued=True).exclude(pk=entry.request_id).aggregate(**counts)
    return {name: (found[f"ahead_{place}"], found[f"startable_{place}"]) for place, name in enumerate(classes)}
