"""Values of a catalogue's records, checked. Each function raises `Unclear` for another type."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from apps.datasets.catalogues.base import Unclear

Record = Mapping[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def text(record: Record, key: str) -> str:
    """Return a text that must be present and not empty."""
    value = record.get(key)
    if not isinstance(value, str) or not value:
        raise Unclear(f"A record has no “{key}”.")
    return value


def identifier(record: Record, key: str) -> str:
    """Return an id, which may be a number, as text; empty if there is none."""
    value = record.get(key)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise Unclear(f"“{key}” of a record is not an id.")
    return str(value)


def count(record: Record, key: str) -> int | None:
    """Return a whole number of at least 0, or None if there is none."""
    value = record.get(key)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Unclear(f"“{key}” of a record is not a count.")
    return value


def required_count(record: Record, key: str) -> int:
    """Return a whole number of at least 0 that must be present."""
    value = count(record, key)
    if value is None:
        raise Unclear(f"A record has no “{key}”.")
    return value


def numbers(record: Record, key: str) -> tuple[int, ...] | None:
    """Return a list of whole numbers, or a single one, or None if there is none."""
    values = record.get(key)
    if values is None:
        return None
    if not isinstance(values, list):
        values = [values]
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int):
            raise Unclear(f"“{key}” of a record is not a list of numbers.")
    return tuple(values)


def flag(record: Record, key: str) -> bool:
    """Return a truth value; False if there is none."""
    value = record.get(key)
    if value is not None and not isinstance(value, bool):
        raise Unclear(f"“{key}” of a record is not true or false.")
    return bool(value)


def time_from_epoch(record: Record, key: str) -> datetime | None:
    """Return a time in seconds since 1970, as UTC."""
    value = record.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise Unclear(f"“{key}” of a record is not a time.")
    try:
        return _EPOCH + timedelta(seconds=value)
    except OverflowError:
        raise Unclear(f"“{key}” of a record is not a time.") from None


def time_from_iso(record: Record, key: str) -> datetime | None:
    """Return a time in ISO 8601, as UTC. Without an offset, it is in UTC."""
    value = record.get(key)
    if value is None:
        return None
    try:
        return _as_utc(datetime.fromisoformat(value))
    except (ValueError, TypeError, OverflowError):
        raise Unclear(f"“{key}” of a record is not a time.") from None


def time_from_http(record: Record, key: str) -> datetime | None:
    """Return a time such as `Wed, 04 Nov 2026 09:00:00 UTC`, as UTC."""
    value = record.get(key)
    if value is None:
        return None
    try:
        return _as_utc(parsedate_to_datetime(value))
    except (ValueError, TypeError, AttributeError, OverflowError):
        raise Unclear(f"“{key}” of a record is not a time.") from None


def _as_utc(time: datetime) -> datetime:
    if time.tzinfo is None:
        return time.replace(tzinfo=UTC)
    return time.astimezone(UTC)


def checksums(values: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Return the checksums that are known, as sorted pairs of algorithm and value."""
    pairs = []
    for algorithm, value in values.items():
        if value is None:
            continue
        if not isinstance(value, str):
            raise Unclear("A checksum of a record is not a text.")
        pairs.append((algorithm.lower(), value.lower()))
    return tuple(sorted(pairs))
