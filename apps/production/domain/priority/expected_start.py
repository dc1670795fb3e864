"""The expected start of a request, from the rate of recent starts and the requests ahead of it."""

import math
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from django.utils import timezone

from apps.core.models import Event
from apps.production.domain.forecast import UNKNOWN, Days
from apps.production.enums import RequestState
from apps.production.models import QueueState

#: Starts within this many days count. With fewer starts than this, there is no estimate.
LOOK_BACK_DAYS = 60
FEWEST_STARTS = 3
#: An estimate beyond this many days is shown as unknown.
MOST_DAYS = 1_000
#: 80% of starts lie within this many standard deviations.
_Z = 1.2816

_STARTS = ("request.test", "request.start")
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Start:
    """Earliest, likeliest and latest day of the start, with their basis.

    Without days, `basis` says why they are unknown.
    """

    early: date | None = None
    likely: date | None = None
    late: date | None = None
    basis: str = ""
    is_held: bool = False
    is_far: bool = False

    @property
    def is_known(self) -> bool:
        return self.likely is not None

    @property
    def days(self) -> Days | None:
        if self.early and self.likely and self.late:
            return Days(self.early, self.likely, self.late)
        return None


def count_starts(state: QueueState, *, at: datetime) -> None:
    """Count requests that left the queue for test or production.

    The counts are set on the state, which the caller saves.
    """
    since = at - LOOK_BACK_DAYS * _DAY
    recent = Event.objects.filter(
        kind__in=_STARTS, old=RequestState.QUEUED, at__gt=since, at__lte=at
    )
    first = (
        Event.objects.filter(kind="request.queue")
        .order_by("id")
        .values_list("at", flat=True)
        .first()
    )
    state.starts = recent.count()
    state.starts_days = max((at - max(since, first or at)) / _DAY, 0.0)


def expected_start(
    *, ahead: int, state: QueueState, at: datetime, held: str = "", starts_on: str = ""
) -> Start:
    """Return the expected start of a request.

    It is today if the cluster `starts_on` has room for it now and starts it. Otherwise it follows
    from the current pace and the number of startable requests ahead.
    """
    if held:
        return Start(basis=f"{UNKNOWN} while {held}.", is_held=True)
    if starts_on:
        today = timezone.localdate(at)
        return Start(
            today, today, today, f"{starts_on} has room for it and starts it within a minute."
        )
    starts = state.starts
    days = state.starts_days
    if starts < FEWEST_STARTS or days <= 0:
        lately = f"in the last {days:.0f} days" if days >= 1 else "recently"
        return Start(basis=f"{UNKNOWN}: only {_count(starts)} started {lately}.")
    turns = [_intervals_until_turn(ahead + 1, starts, z) * days / starts for z in (-_Z, 0.0, _Z)]
    if turns[1] > MOST_DAYS:
        basis = f"{UNKNOWN}: more than 1,000 days away at the current pace."
        return Start(basis=basis, is_far=True)
    dates = [timezone.localdate(at + min(turn, 2 * MOST_DAYS) * _DAY) for turn in turns]
    early, likely, late = dates
    basis = (
        f"{_count(starts)} started in the last {days:.0f} days; {_count(ahead)} "
        f"{'is' if ahead == 1 else 'are'} ahead of it. "
        "80 % of requests start between the two dates."
    )
    return Start(early, likely, late, basis)


def _intervals_until_turn(turn: int, starts: int, z: float) -> float:
    """Return the number of mean intervals until a turn.

    It is a quantile of F(2 turn, 2 starts), by Paulson's formula. Starts are random, at a rate that
    is itself estimated from `starts` of them.
    """
    a = 1 / (9 * turn)
    b = 1 / (9 * starts)
    spread = math.sqrt(max(0.0, (1 - a) ** 2 * b + (1 - b) ** 2 * a - z * z * a * b))
    root = ((1 - a) * (1 - b) + z * spread) / ((1 - b) ** 2 - z * z * b)
    return turn * max(0.0, root) ** 3


def _count(number: int) -> str:
    return f"{number:,} request{'' if number == 1 else 's'}"
