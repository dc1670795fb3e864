"""Queues of work: rows of a table that workers claim, try, and retry.

A row stays in the table of its app, beside what it is about. It is claimed by a short transaction
that counts the attempt and sets when the row counts as lost. The work itself holds the row: it
locks it, and checks that the claim is still its own, in the transaction that stores the result. A
row whose worker was killed is due again when its claim has expired, without a sweep.

Celery runs the workers. Its messages only say that there is work: they may be lost, or come twice.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from django.db import transaction
from django.db.models import Count, F, Min, Q, QuerySet, Value

from apps.core.models import Work

log = logging.getLogger(__name__)

W = TypeVar("W", bound=Work)

#: Attempts that failed, or whose worker was killed. A first attempt under way is neither.
_FAILING = Q(attempts__gt=1) | ~Q(last_error="")
_LONGEST_ERROR = 2000


@dataclass(frozen=True)
class BackOff:
    """The wait before the next attempt, by the number of failures; the last one repeats."""

    seconds: tuple[float, ...]

    def after(self, failures: int) -> timedelta:
        """Return how long to wait after this number of failures, which is at least 1."""
        index = min(failures, len(self.seconds)) - 1
        return timedelta(seconds=self.seconds[index])


@dataclass(frozen=True)
class QueueFigures:
    """How many rows wait or are worked on, how long the oldest is overdue, how many failed."""

    name: str
    title: str
    length: int
    oldest_seconds: float
    failing: int


@dataclass(frozen=True)
class Queue(Generic[W]):
    """The unfinished rows of a model, under a name for metrics and a title for pages.

    A worker that has neither held nor finished a row `lease` after its claim was killed. Work that
    holds the row from its start needs a lease of seconds; work outside of transactions, one that
    is longer than the work.
    """

    name: str
    title: str
    model: type[W]
    unfinished_rows: Q
    back_off: BackOff
    lease: timedelta = timedelta(seconds=10)

    def unfinished(self) -> QuerySet[W]:
        return self.model._default_manager.filter(self.unfinished_rows)

    def due(self, at: datetime) -> QuerySet[W]:
        """Return the rows to be tried now, the longest waiting first."""
        return self.unfinished().filter(due_at__lte=at).order_by("due_at")

    def failing(self) -> QuerySet[W]:
        """Return the unfinished rows that failed, or whose worker was killed."""
        return self.unfinished().filter(_FAILING)

    @transaction.atomic
    def claim(
        self,
        rows: QuerySet[W],
        *,
        at: datetime,
        select: Callable[[list[W]], list[W]] | None = None,
        **changes: Any,
    ) -> list[W]:
        """Claim the rows that no other worker claims or holds; count the attempt.

        `select` chooses among them; `changes` are values of other fields. A row whose worker is
        killed is due again after the lease or the back-off, whichever is longer, so that a row
        that kills workers does not take one after another.
        """
        free = list(rows.select_for_update(skip_locked=True, of=("self",)))
        claimed = select(free) if select else free

        by_due_at: dict[datetime, list[int]] = defaultdict(list)
        for row in claimed:
            row.attempts += 1
            row.due_at = at + max(self.lease, self.back_off.after(row.attempts))
            for name, value in changes.items():
                setattr(row, name, value)
            by_due_at[row.due_at].append(row.pk)

        for due_at, pks in by_due_at.items():
            same = self.model._default_manager.filter(pk__in=pks)
            same.update(attempts=F("attempts") + 1, due_at=due_at, **changes)
        return claimed

    def claim_batch(self, rows: QuerySet[W], *, most: int, at: datetime) -> list[W]:
        """Claim up to `most` of these rows that were not tried yet; else one that was.

        A row that was tried before may have killed its worker, so it is tried alone.
        """
        return self.claim(rows.filter(attempts=0)[:most], at=at) or self.claim(
            rows.filter(attempts__gt=0)[:1], at=at
        )

    def hold(self, claimed: Iterable[W]) -> list[W]:
        """Lock claimed rows until the transaction ends; return those whose claim still stands.

        The others were claimed or queued again meanwhile: what was done for them is not stored.
        """
        rows = list(claimed)
        # Not `skip_locked`: another worker that looks for rows may lock them for a moment.
        locked = self.unfinished().select_for_update(of=("self",)).order_by("pk")
        locked = locked.filter(pk__in=[row.pk for row in rows]).only("attempts", "due_at")
        claims = {row.pk: (row.attempts, row.due_at) for row in locked}
        return [row for row in rows if claims.get(row.pk) == (row.attempts, row.due_at)]

    def release(self, claimed: Sequence[W], *, due_at: datetime, **changes: Any) -> None:
        """Give claimed rows back until `due_at`; the attempt does not count."""
        if not claimed:
            return
        with transaction.atomic():
            held = [row.pk for row in self.hold(claimed)]
            rows = self.model._default_manager.filter(pk__in=held)
            rows.update(attempts=F("attempts") - 1, due_at=due_at, **changes)

    @transaction.atomic
    def fail(
        self,
        row: W,
        error: str,
        *,
        at: datetime,
        wait: timedelta | None = None,
        **changes: Any,
    ) -> bool:
        """Record why a claimed row failed, and when to retry; False if its claim is lost."""
        if not self.hold([row]):
            return False
        due_at = at + (self.back_off.after(row.attempts) if wait is None else wait)
        rows = self.model._default_manager.filter(pk=row.pk)
        rows.update(due_at=due_at, last_error=error[:_LONGEST_ERROR], **changes)
        return True

    @transaction.atomic
    def take_overdue(self, *, at: datetime, grace: timedelta, limit: int = 500) -> list[W]:
        """Return rows that have waited too long for a worker, to send their messages again.

        They are due from now on: a message that waits in a long queue is not sent again at once.
        """
        overdue = self.due(at - grace).select_for_update(skip_locked=True, of=("self",))
        rows = list(overdue[:limit])
        self.model._default_manager.filter(pk__in=[row.pk for row in rows]).update(due_at=at)
        return rows

    def process(self, rows: QuerySet[W], handle: Callable[[W], None], *, at: datetime) -> W | None:
        """Claim the first of these rows, and handle it in a transaction that holds it.

        Returns the row; None if there was none, or it failed. `handle` marks the row as finished or
        sets when it is due next: its writes and the mark happen together, once. A failure is
        recorded and retried.
        """
        for row in self.claim(rows[:1], at=at):
            try:
                with transaction.atomic():
                    if not self.hold([row]):
                        return None
                    handle(row)
                return row
            except Exception as error:  # whatever is wrong with one row must not stop the others
                log.exception("%s: %s failed", self.name, row)
                self.fail(row, describe(error), at=at)
        return None


def describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".replace("\0", "")


def queue_figures(queues: Sequence[Queue[Any]], *, at: datetime) -> list[QueueFigures]:
    """Return the figures of these queues, in one query."""
    counts = [_counts(queue) for queue in queues]
    rows = {row["queue"]: row for row in counts[0].union(*counts[1:], all=True)}
    return [_figures(queue, rows.get(queue.name, {}), at) for queue in queues]


def _counts(queue: Queue[Any]) -> QuerySet[Any, Any]:
    rows = queue.unfinished().order_by().annotate(queue=Value(queue.name)).values("queue")
    counts: QuerySet[Any, Any] = rows.annotate(
        length=Count("pk"), oldest=Min("due_at"), failing=Count("pk", filter=_FAILING)
    )
    return counts


def _figures(queue: Queue[Any], row: Mapping[str, Any], at: datetime) -> QueueFigures:
    oldest = row.get("oldest") or at
    return QueueFigures(
        name=queue.name,
        title=queue.title,
        length=row.get("length", 0),
        oldest_seconds=max(0.0, (at - oldest).total_seconds()),
        failing=row.get("failing", 0),
    )
