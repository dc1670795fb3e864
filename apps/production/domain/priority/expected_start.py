"""The expected start of a request, from the work ahead of it and the pace of the clusters."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta

from django.utils import timezone

from apps.core.domain.quantities import count_noun
from apps.core.models import Event
from apps.production.domain.forecast import UNKNOWN, Days
from apps.production.domain.priority.pace import LOOK_BACK_DAYS, Pace, QueuedWork, Throughput
from apps.production.enums import RequestState
from apps.production.models import QueueState

#: Starts within this many days are counted.
STARTS_DAYS = 60
#: An estimate beyond this many days is shown as unknown.
MOST_DAYS = 1_000

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
    since = at - STARTS_DAYS * _DAY
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
    *, ahead: QueuedWork, throughput: Throughput, at: datetime, held: str = "", starts_on: str = ""
) -> Start:
    """Return the expected start of a request.

    It is today if the cluster `starts_on` has room for it now and starts it. Otherwise the clusters
    first do the work left of requests that have started, and of requests `ahead` in the queue.
    """
    if held:
        return Start(basis=f"{UNKNOWN} while {held}.", is_held=True)
    if starts_on:
        today = timezone.localdate(at)
        return Start(
            today, today, today, f"{starts_on} has room for it and starts it within minutes."
        )
    pace = throughput.pace
    if pace is None:
        return Start(basis=f"{UNKNOWN} {throughput.why_no_pace}.")
    work = throughput.started + ahead
    days_by_pace = [work.core_seconds / by for by in (pace.fast, pace.usual, pace.slow)]
    basis = _basis(ahead, throughput.started, pace)
    if days_by_pace[1] > MOST_DAYS:
        basis = f"{UNKNOWN}: more than 1,000 days away at the current pace. {basis}"
        return Start(basis=basis, is_far=True)
    early, likely, late = (
        timezone.localdate(at + min(days, 2 * MOST_DAYS) * _DAY) for days in days_by_pace
    )
    return Start(early, likely, late, basis)


def _basis(ahead: QueuedWork, started: QueuedWork, pace: Pace) -> str:
    """Return what a start follows from, in sentences."""
    work = ahead + started
    if not work.requests:
        return "No work is ahead of it."
    in_queue = ahead.requests + ahead.on_hold
    requests = f"{count_noun(in_queue, 'request')} in the queue"
    if ahead.on_hold:
        requests += f" ({ahead.on_hold:,} of them on hold, not counted)"
    basis = (
        f"{_core_hours(work.core_seconds)} are ahead of it: {requests}, "
        f"{started.requests:,} in production. Clusters do {_core_hours(pace.usual)} a day "
        f"({pace.days} days with work in the last {LOOK_BACK_DAYS}), which gives the likely date. "
        f"At {pace.fast / 3600:,.0f} a day it would start on the earliest date, "
        f"at {pace.slow / 3600:,.0f} on the latest."
    )
    if work.unsized:
        basis += f" The work of {work.unsized:,} of these requests is unknown and not counted."
    return basis


def _core_hours(core_seconds: float) -> str:
    return f"{core_seconds / 3600:,.0f} core-hours"
