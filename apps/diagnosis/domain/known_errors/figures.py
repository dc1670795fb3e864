"""Count the jobs of known errors over time, from the daily totals by cause."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import Max, Sum

from apps.accounts.models import User
from apps.diagnosis.models import DailyCauseTotals, KnownErrorChange
from apps.jobs.domain.records.conversion import hour_of

DAYS = 30


@dataclass(frozen=True, slots=True)
class Figures:
    """The jobs whose failure in 30 days is due to a known error: sums, the last one, daily counts.

    `daily` starts with the oldest day.
    """

    jobs: int
    succeeded: int
    core_seconds: int
    last: datetime
    daily: list[int]


def days_until(at: datetime) -> list[datetime]:
    """Return the starts of the days that the figures cover, in UTC, oldest first."""
    today = hour_of(at).replace(hour=0)
    return [today - timedelta(days=DAYS - 1 - number) for number in range(DAYS)]


def figures_of(
    user: User, *, at: datetime, only: Collection[str] | None = None
) -> dict[str, Figures]:
    """Return figures by known error for the jobs that the user may see; none without jobs."""
    days = days_until(at)
    totals = (
        DailyCauseTotals.objects.visible_to(user)
        .filter(day__gte=days[0])
        .exclude(cause="")
        .order_by()
    )
    if only is not None:
        totals = totals.filter(cause__in=only)
    daily: dict[str, list[int]] = {}
    for cause, day, jobs in totals.values_list("cause", "day").annotate(n=Sum("jobs")):
        counts = daily.setdefault(cause, [0] * DAYS)
        counts[min(max((day - days[0]).days, 0), DAYS - 1)] += jobs
    sums = totals.values_list("cause").annotate(
        n=Sum("jobs"), later=Sum("succeeded"), cores=Sum("core_seconds"), last=Max("last_ended_at")
    )
    figures = {}
    for cause, jobs, later, cores, last in sums:
        figures[cause] = Figures(jobs, later, cores, last, daily[cause])
    return figures


class ChangedField(NamedTuple):
    """A field whose value changed, with both values as text."""

    field: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """A change with the fields that differ from the previous version: (field, old, new)."""

    change: KnownErrorChange
    differences: list[ChangedField]


def list_changed_fields(old: dict[str, object], new: dict[str, object]) -> list[ChangedField]:
    names = {"regex": "pattern", "expires_at": "expires", "instructions": "what to do"}
    different = []
    for name, value in new.items():
        if _text(old.get(name)) != _text(value):
            label = names.get(name, name)
            different.append(ChangedField(label, _text(old.get(name)), _text(value)))
    return different


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def history_of(known_error: str) -> list[HistoryStep]:
    """Return all changes of a known error, newest first, each with its differences."""
    changes = list(KnownErrorChange.objects.filter(known_error=known_error).order_by("pk"))
    steps: list[HistoryStep] = []
    current: dict[str, object] = {}
    for change in changes:
        steps.append(
            HistoryStep(change, list_changed_fields(current, change.values) if current else [])
        )
        if change.version:
            current = change.values
    return steps[::-1]
