"""Validate times and numbers in records that other systems and jobs send."""

import math
from datetime import UTC, datetime

from django.utils.dateparse import parse_datetime


class BadRecord(ValueError):
    """A record cannot be stored; the message says why."""


def read_time(name: str, value: object) -> datetime:
    """Return a time, given with an offset or in seconds since 1970. Raises `BadRecord`."""
    try:
        if not _is_number(value):
            at = parse_datetime(str(value))
        else:
            at = datetime.fromtimestamp(float(str(value)), UTC)
    except (ValueError, OverflowError, OSError):
        at = None
    if at is None or at.tzinfo is None:
        raise BadRecord(
            f"{name} is not a time with an offset, such as 2026-11-22T09:14:00Z, nor seconds "
            "since 1970."
        )
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise BadRecord(f"{name} is out of range.") from None


def read_number(name: str, value: object, *, negative: bool = False) -> float:
    """Return a finite number. Raises `BadRecord`, also for negative ones unless allowed."""
    if isinstance(value, bool) or not _is_number(value):
        raise BadRecord(f"{name} is not a number.")
    number = float(str(value))
    if number < 0 and not negative:
        raise BadRecord(f"{name} is negative.")
    return number


def _is_number(value: object) -> bool:
    try:
        return math.isfinite(float(str(value)))
    except ValueError:
        return False
