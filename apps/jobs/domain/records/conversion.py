"""Convert between accounting records and job rows."""

import hashlib
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from operator import attrgetter
from typing import Any

import orjson
from django.conf import settings
from django.db import models

from apps.clusters.schedulers.base import JobRecord, JobState
from apps.clusters.schedulers.plausibility import MOST_TEXT
from apps.jobs.models import Job

#: Identifies one attempt within its cluster.
Key = tuple[str, datetime, int]

#: Fields from accounting, which may correct them later. The site is excluded: it is a row of its
#: own.
RECORD_FIELDS = tuple(name for name in JobRecord.__dataclass_fields__ if name != "site")

_RANGES = {
    "PositiveIntegerField": (0, 2**31 - 1),
    "IntegerField": (-(2**31), 2**31 - 1),
    "BigIntegerField": (-(2**63), 2**63 - 1),
}
#: Fields that may also come from the list of hosts, the job itself, or its cluster.
_FROM_ELSEWHERE = {"cpu_model", "host_address", "site_id"}
#: Core-seconds (time multiplied by cores) must fit too.
_SECONDS = (0, 2**31 - 1)


def key_of(record: JobRecord | Job) -> Key:
    """Return the key of an attempt within its cluster."""
    return record.job_id, record.submitted_at, record.attempt


def columns_of(records: Sequence[JobRecord]) -> dict[str, Sequence[Any]]:
    """Return the values of records by field, adapted to the limits of the database.

    A value out of range thus never stops the batch. Working by column takes half the time of one
    dictionary per record.
    """
    columns = zip(*map(attrgetter(*RECORD_FIELDS), records), strict=True)
    return dict(zip(RECORD_FIELDS, map(_fitted, _fitters(), columns), strict=True))


def _fitted(fit: Callable[[Any], Any] | None, column: Sequence[Any]) -> Sequence[Any]:
    """Return a column with every value adapted by `fit`.

    Each distinct value is adapted once: most repeat in thousands of jobs.
    """
    if fit is None:
        return column
    values = {value: fit(value) for value in set(column)}
    return [values[value] for value in column]


def record_of(job: Job) -> JobRecord:
    """Return the accounting record of a job row, without its site."""
    values = {name: getattr(job, name) for name in RECORD_FIELDS}
    return JobRecord(**{**values, "state": JobState(job.state)})


def find_differences(job: Job, values: dict[str, Any]) -> dict[str, Any]:
    """Return the `values` that differ from the row.

    Values known only from elsewhere are kept if the record lacks them.
    """
    different = {}
    for name, value in values.items():
        if getattr(job, name) != value and (value or name not in _FROM_ELSEWHERE):
            different[name] = value
    return different


def hour_of(at: datetime) -> datetime:
    """Return the start of the hour of a time, in UTC."""
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def last_hours(at: datetime, hours: int) -> tuple[datetime, datetime]:
    """Return the start and end of the last `hours` UTC hours: the current one and those before it.

    Every page that names a period up to now means this one, so that their counts agree.
    """
    end = hour_of(at) + timedelta(hours=1)
    return end - timedelta(hours=hours), end


def day_of(at: datetime) -> datetime:
    """Return the start of the UTC day of a time."""
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def clean_text(text: str, limit: int | None = None) -> str:
    """Return text that PostgreSQL accepts, at most `limit` characters.

    NUL and lone surrogates are replaced.
    """
    if text.isascii() and "\0" not in text:
        return text[:limit]
    return (
        text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")[:limit]
    )


def keyed_digest(content: str) -> str:
    """Return a keyed hash of text that may contain secrets, with the masking key."""
    key = hashlib.sha256(b"opsportal records" + settings.MASKING_KEY.encode()).digest()
    return _digest(_bytes_of(content), key)


def record_digests(*depends: object) -> Callable[[JobRecord], str]:
    """Return a function that hashes a record together with `depends`.

    `depends` are the settings and rules that the stored row depends on.
    """
    key = hashlib.sha256(keyed_digest(repr(depends)).encode()).digest()
    return lambda record: _digest(_content_of(record), key)


def _content_of(record: JobRecord) -> bytes:
    try:
        return orjson.dumps(record)
    except TypeError:
        # The record has a lone surrogate, or a number beyond 64 bits.
        return _bytes_of(repr(record))


def _bytes_of(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _digest(content: bytes, key: bytes) -> str:
    return hashlib.blake2b(content, key=key, digest_size=16).hexdigest()


@cache
def _fitters() -> list[Callable[[Any], Any] | None]:
    return [_fitter(name, Job._meta.get_field(name)) for name in RECORD_FIELDS]


def _fitter(name: str, field: Any) -> Callable[[Any], Any] | None:
    """Return the function that adapts a value to its field; None if every value fits."""
    if isinstance(field, models.CharField | models.TextField):
        limit = field.max_length or MOST_TEXT
        return lambda text: clean_text(str(text), limit) if text else ""
    if isinstance(field, models.FloatField):
        unknown = None if field.null else 0.0
        return lambda value: value if value is not None and math.isfinite(value) else unknown
    if limits := _SECONDS if name.endswith("_seconds") else _RANGES.get(field.get_internal_type()):
        low, high = limits
        return lambda value: (
            value if value is None or low <= value <= high else int(max(low, min(value, high)))
        )
    return None
