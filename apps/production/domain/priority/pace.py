"""The pace at which clusters do the work of requests, and the work that is ahead of each.

Work is in core-seconds. It includes failed attempts, in the pace as in the estimates.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from django.db.models import Count, F, Q, Sum
from django.db.models.functions import Coalesce

from apps.production.domain.estimates.figures import Distribution
from apps.production.enums import RequestState
from apps.production.models import QueueEntry, QueueState

#: Work of this many days counts. With fewer days on which jobs of requests ended, there is no pace.
LOOK_BACK_DAYS = 30
FEWEST_DAYS = 5
#: The states of requests whose work left is ahead of the whole queue.
_STARTED = (RequestState.TESTING, RequestState.RUNNING)


@dataclass(frozen=True)
class Pace:
    """Work per day. Half of the recent work was done on days of at least the `usual` work.

    A quarter was done on days of at most the `slow` work, and a quarter on days of at least the
    `fast`. `days` is the number of days on which jobs of requests ended.
    """

    slow: float
    usual: float
    fast: float
    days: int


def measure_pace(work_by_day: Sequence[float]) -> Pace | None:
    """Return the pace from the work of each day; None if there was any on too few days.

    Each day counts with its work, because on days of little work there was little to do.
    """
    worked = [work for work in work_by_day if work > 0]
    if len(worked) < FEWEST_DAYS:
        return None
    slow, usual, fast = Distribution((work, work) for work in worked).quantiles((0.25, 0.5, 0.75))
    return Pace(slow, usual, fast, len(worked))


def countable_size(core_seconds: float | None, stop_on: Any) -> float | None:
    """Return the size of a request as work ahead of others; None if it does not count.

    Keep-up processing, which has a date to stop on, works until then, as fast as files come.
    """
    return core_seconds if stop_on is None else None


@dataclass(frozen=True)
class QueuedWork:
    """The work of some requests. `unsized` of them have unknown work, which is not in the sum.

    `on_hold` further requests cannot start: neither they nor their work count.
    """

    requests: int = 0
    core_seconds: float = 0.0
    unsized: int = 0
    on_hold: int = 0

    def with_request(self, core_seconds: float | None) -> "QueuedWork":
        """Return the work with the work of one more request added."""
        return QueuedWork(
            self.requests + 1,
            self.core_seconds + (core_seconds or 0.0),
            self.unsized + (core_seconds is None),
            self.on_hold,
        )

    def with_request_on_hold(self) -> "QueuedWork":
        return replace(self, on_hold=self.on_hold + 1)

    def __add__(self, other: "QueuedWork") -> "QueuedWork":
        return QueuedWork(
            self.requests + other.requests,
            self.core_seconds + other.core_seconds,
            self.unsized + other.unsized,
            self.on_hold + other.on_hold,
        )

    def __sub__(self, other: "QueuedWork") -> "QueuedWork":
        return QueuedWork(
            self.requests - other.requests,
            self.core_seconds - other.core_seconds,
            self.unsized - other.unsized,
            self.on_hold - other.on_hold,
        )


def work_ahead(queue: Iterable[tuple[bool, float | None]]) -> list[QueuedWork]:
    """Return the work ahead of each request of the queue, and at last the work of all of it.

    Each request is given by whether it can start, and its size. Those that cannot are on hold.
    """
    works = [QueuedWork()]
    for can_start, core_seconds in queue:
        if can_start:
            works.append(works[-1].with_request(core_seconds))
        else:
            works.append(works[-1].with_request_on_hold())
    return works


@dataclass(frozen=True)
class Throughput:
    """The measured work of each day, and the work left of requests that have started."""

    work_by_day: Sequence[float] = ()
    started: QueuedWork = field(default_factory=QueuedWork)

    @cached_property
    def pace(self) -> Pace | None:
        return measure_pace(self.work_by_day)

    @property
    def days(self) -> int:
        """The number of days on which jobs of requests ended."""
        return len([work for work in self.work_by_day if work > 0])

    @property
    def why_no_pace(self) -> str:
        """Why the pace is unknown, as the end of a sentence that begins with `unknown`."""
        return (
            f"until jobs of requests have ended on {FEWEST_DAYS} days, which give the pace of the "
            f"clusters: in the last {LOOK_BACK_DAYS} days they did on {self.days}"
        )


def read_throughput(state: QueueState) -> Throughput:
    """Return the pace with the work left of the requests that have started, in one query.

    The work left of a request is its estimate, less the part of its jobs that have completed.
    """
    left = F("core_seconds") * (1.0 - Coalesce("request__part_done", 0.0))
    is_countable = Q(core_seconds__isnull=False) & ~Q(request__arguments__has_key="stop_on")
    sums = QueueEntry.objects.filter(request__state__in=_STARTED).aggregate(
        requests=Count("pk"),
        sized=Count("pk", filter=is_countable),
        work=Coalesce(Sum(left, filter=is_countable), 0.0),
    )
    started = QueuedWork(sums["requests"], sums["work"], sums["requests"] - sums["sized"])
    return Throughput(state.work_by_day, started)
