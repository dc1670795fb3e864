"""Calendar months of job records, in UTC by the end of the job, and which months were dropped."""

from datetime import UTC, date, datetime, time, timedelta

from apps.core.domain.locks import lock_for_this_transaction, share_lock_for_this_transaction
from apps.jobs.models import ArchivedMonth

_LOCK = "jobs.months"


def month_of(at: datetime) -> date:
    """Return the first day of the month of a time."""
    return at.astimezone(UTC).date().replace(day=1)


def start_of(month: date) -> datetime:
    """Return the start of a month."""
    return datetime.combine(month, time(), UTC)


def next_month(month: date) -> date:
    """Return the first day of the following month."""
    return (month + timedelta(days=31)).replace(day=1)


def months_before(month: date, count: int) -> date:
    """Return the first day of the month `count` months earlier."""
    number = month.year * 12 + month.month - 1 - count
    return date(number // 12, number % 12 + 1, 1)


def dropped_months() -> set[date]:
    """Return the months whose job records are archived and no longer in the database."""
    return set(ArchivedMonth.objects.exclude(dropped_at=None).values_list("month", flat=True))


def unlisted_months(*, since: datetime | None, until: datetime | None) -> list[date]:
    """Return the dropped months that overlap this period, oldest first."""
    months = sorted(dropped_months())
    unlisted = []
    for month in months:
        if (since is None or since < start_of(next_month(month))) and (
            until is None or until > start_of(month)
        ):
            unlisted.append(month)
    return unlisted


def keep_months() -> None:
    """Prevent months from being dropped until this transaction ends."""
    share_lock_for_this_transaction(_LOCK)


def lock_months() -> None:
    """Wait for transactions that count or store jobs, and block new ones until this one ends."""
    lock_for_this_transaction(_LOCK)


def without_records(hour: datetime) -> bool:
    """Return whether the job records of an hour were dropped.

    The answer holds until this transaction ends.
    """
    keep_months()
    return month_of(hour) in dropped_months()
