"""The indexes of logs that a target has: one that searches use, and one that replaces it."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction

from apps.core.domain.work import BackOff
from apps.search.models import LogIndex

#: How long a target is left alone after its failures.
BACK_OFF = BackOff((10, 20, 60, 120, 300))


def serving_index(target: str) -> LogIndex | None:
    """Return the index that searches use; None before the first log."""
    return LogIndex.objects.filter(target=target, serving=True).first()


def indexes_of(target: str) -> list[LogIndex]:
    """Return the indexes that each new log belongs in."""
    return list(LogIndex.objects.filter(target=target).order_by("generation"))


def first_index(target: str, *, layout: int) -> LogIndex:
    """Return the index that searches use, created if the target has none."""
    if index := serving_index(target):
        return index
    try:
        with transaction.atomic():
            return LogIndex.objects.create(target=target, layout=layout)
    except IntegrityError:
        # Another worker was faster.
        return LogIndex.objects.get(target=target, serving=True)


def add_months(index: LogIndex, months: Iterable[str]) -> bool:
    """Note that an index has these months; return False if it was replaced meanwhile."""
    with transaction.atomic():
        locked = LogIndex.objects.select_for_update().filter(pk=index.pk).first()
        if locked is None:
            return False
        index.months = sorted({*locked.months, *months})
        locked.months = index.months
        locked.save(update_fields=["months"])
    return True


def remove_months(index: LogIndex, months: Iterable[str]) -> None:
    """Note that an index no longer has these months."""
    with transaction.atomic():
        locked = LogIndex.objects.select_for_update().filter(pk=index.pk).first()
        if locked is not None:
            locked.months = sorted(set(locked.months) - set(months))
            locked.save(update_fields=["months"])


def start_rebuild(target: str, *, layout: int) -> LogIndex:
    """Return the index that is to replace the one in use; it is created unless there is one."""
    current = first_index(target, layout=layout)
    with transaction.atomic():
        # One at a time.
        LogIndex.objects.select_for_update().get(pk=current.pk)
        building = LogIndex.objects.filter(target=target, serving=False).first()
        if building and building.layout == layout:
            return building
        if building:
            building.delete()
        newest = LogIndex.objects.filter(target=target).order_by("-generation")[0].generation
        if building:
            newest = max(newest, building.generation)
        return LogIndex.objects.create(
            target=target, generation=newest + 1, serving=False, layout=layout
        )


@transaction.atomic
def put_in_use(index: LogIndex) -> None:
    """Let searches use a full index from now on, and forget the one before it."""
    LogIndex.objects.filter(target=index.target, serving=True).exclude(pk=index.pk).delete()
    LogIndex.objects.filter(pk=index.pk).update(serving=True)


def is_resting(target: str, *, at: datetime) -> bool:
    """Return whether a target failed a moment ago, so that it is not tried now."""
    return LogIndex.objects.filter(target=target, serving=True, retry_at__gt=at).exists()


def note_failure(target: str, error: str, *, at: datetime) -> timedelta:
    """Note that a target could not be reached; return how long it is not tried."""
    index = serving_index(target)
    failures = 1 if index is None else index.failures + 1
    wait = BACK_OFF.after(failures)
    LogIndex.objects.filter(target=target, serving=True).update(
        failures=failures, retry_at=at + wait, last_error=error[:2_000]
    )
    return wait


def note_success(target: str) -> None:
    """Note that a target works."""
    failed = LogIndex.objects.filter(target=target, serving=True, failures__gt=0)
    failed.update(failures=0, retry_at=None, last_error="")
