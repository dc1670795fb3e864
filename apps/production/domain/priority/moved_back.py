"""The requests in the queue that start later if others are approved and come before them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from django.utils import timezone

from apps.accounts.models import User
from apps.accounts.permissions import scope_of
from apps.production.domain.forecast import Forecast
from apps.production.domain.priority.expected_start import MOST_DAYS, expected_start
from apps.production.domain.priority.listing import held_by
from apps.production.domain.priority.pace import QueuedWork
from apps.production.domain.priority.prospects import NewEntry, QueueNow
from apps.production.domain.priority.queue_forecast import forecast_of_queued
from apps.production.domain.slack import Slack, slack_of
from apps.production.models import QueueEntry, Request

#: How many of them are named.
MOST_NAMED = 50


@dataclass(frozen=True)
class Delayed:
    """A request that starts later, with its expected start now and then; None if unknown.

    `becomes_late` says that only then it misses its deadline.
    """

    request: Request
    start_now: date | None
    start_then: date | None
    slack_then: Slack | None
    becomes_late: bool


@dataclass(frozen=True)
class MovedBack:
    """Queued requests that start later: all together, and the first that a user may see.

    Each is delayed by at most about `delay`, which is None while the pace is unknown.
    """

    pks: Sequence[int] = ()
    delay: timedelta | None = None
    named: Sequence[Delayed] = ()

    def __len__(self) -> int:
        return len(self.pks)

    @property
    def unnamed(self) -> int:
        return len(self.pks) - len(self.named)

    @property
    def becoming_late(self) -> int:
        """The number of named requests that only then miss their deadline."""
        return len([row for row in self.named if row.becomes_late])

    @property
    def delay_text(self) -> str:
        """The delay in days or, below 18 hours, in hours; empty if unknown."""
        if self.delay is None:
            return ""
        hours = self.delay / timedelta(hours=1)
        if hours < 18:
            return f"{max(1, round(hours))} h"
        return f"{round(hours / 24)} d"


@dataclass(frozen=True)
class _Change:
    """The work ahead of a queued request now and then."""

    pk: int
    ahead_now: QueuedWork
    ahead_then: QueuedWork


def moved_back(
    alternatives: Sequence[Sequence[NewEntry]], *, user: User, at: datetime, queue: QueueNow
) -> list[MovedBack]:
    """Return what each of these alternatives moves back: requests that may be approved now.

    One query names the requests of all alternatives.
    """
    changes = [_changes(entries, queue) for entries in alternatives]
    seen = _seen_entries(changes, user)
    pace = queue.throughput.pace
    moved = []
    for entries, changed in zip(alternatives, changes, strict=True):
        named = []
        for change in changed[:MOST_NAMED]:
            if entry := seen.get(change.pk):
                named.append(_delayed(entry, change, queue, at))
        delay = None
        sizes = [entry.size for entry in entries if entry.size is not None]
        if pace and sizes and changed:
            delay = timedelta(days=min(sum(sizes) / pace.usual, MOST_DAYS))
        moved.append(MovedBack([change.pk for change in changed], delay, named))
    return moved


def _changes(entries: Sequence[NewEntry], queue: QueueNow) -> list[_Change]:
    """Return the queued requests that can start and would have more work ahead of them.

    Those that a cluster starts at once stay as they are, unless they lose its room.
    """
    places = queue.places
    displaced_pks = {entry.displaced_pk for entry in entries}
    waiting = sorted(entries, key=lambda entry: entry.place.index)
    new_work = QueuedWork()
    changes = []
    for index, queued in enumerate(places.entries):
        while waiting and waiting[0].place.index <= index:
            new_work = new_work.with_request(waiting.pop(0).size)
        starts_now = queued.starts_on and queued.pk not in displaced_pks
        if not new_work.requests or not queued.can_start or starts_now:
            continue
        ahead = places.work_before[index]
        changes.append(_Change(queued.pk, ahead, ahead + new_work))
    return changes


def _seen_entries(changes: Iterable[Sequence[_Change]], user: User) -> dict[int, QueueEntry]:
    pks: set[int] = set()
    for changed in changes:
        pks.update(change.pk for change in changed[:MOST_NAMED])
    if not pks:
        return {}
    entries = QueueEntry.objects.select_related("request__experiment").in_bulk(pks)
    scope = scope_of(user)
    return {pk: entry for pk, entry in entries.items() if scope.sees(entry.request.experiment_id)}


def _delayed(entry: QueueEntry, change: _Change, queue: QueueNow, at: datetime) -> Delayed:
    request = entry.request
    now = _forecast(entry, change.ahead_now, queue, at, starts_on=entry.starts_on)
    then = _forecast(entry, change.ahead_then, queue, at)
    today = timezone.localdate(at)
    slack_now = slack_of(request.deadline, now, today=today)
    slack_then = slack_of(request.deadline, then, today=today)
    becomes_late = _is_late(slack_then) and not _is_late(slack_now)
    return Delayed(request, _likely_start(now), _likely_start(then), slack_then, becomes_late)


def _is_late(slack: Slack | None) -> bool:
    return slack is not None and slack.is_late


def _forecast(
    entry: QueueEntry, ahead: QueuedWork, queue: QueueNow, at: datetime, *, starts_on: str = ""
) -> Forecast:
    held = held_by(entry.request, queue.holds)
    start = expected_start(
        ahead=ahead, throughput=queue.throughput, at=at, held=held, starts_on=starts_on
    )
    return forecast_of_queued(entry, start, at=at)


def _likely_start(forecast: Forecast) -> date | None:
    return forecast.start.likely if forecast.start else None
