"""Conversion between accounting records and job rows."""

import hashlib
import math
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any

from django.conf import settings
from django.db import models

from apps.clusters.schedulers.base import JobRecord, JobState
from apps.clusters.schedulers.plausibility import MOST_TEXT
from apps.jobs.models import Job

#: What identifies one attempt within its cluster.
Key = tuple[str, datetime, int]

#: Fields from accounting, which may correct them later.
RECORD_FIELDS = tuple(JobRecord.__dataclass_fields__)

_RANGES = {
    "PositiveIntegerField": (0, 2**31 - 1),
    "IntegerField": (-(2**31), 2**31 - 1),
    "BigIntegerField": (-(2**63), 2**63 - 1),
}
#: Times multiplied by cores must fit too.
_SECONDS = (0, 2**31 - 1)


def key_of(record: JobRecord | Job) -> Key:
    """Return the key of an attempt within its cluster."""
    return record.job_id, record.submitted_at, record.attempt


def values_of(record: JobRecord) -> dict[str, Any]:
    """Return the values of a record, made to fit the database, so that one odd record cannot stop the others."""
    return {name: fit(getattr(record, name)) for name, fit in _fitters().items()}


def record_of(job: Job) -> JobRecord:
    """Return the record of a job row."""
    values = {name: getattr(job, name) for name in RECORD_FIELDS}
    return JobRecord(**{**values, "state": JobState(job.state)})


def differences(job: Job, values: dict[str, Any]) -> dict[str, Any]:
    """Return the `values` that differ from the row."""
    return {name: value for name, value in values.items() if getattr(job, name) != value}


def hour_of(at: datetime) -> datetime:
    """Return the start of the hour of a time, in UTC."""
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def clean_text(text: str, limit: int | None = None) -> str:
    """Return text that PostgreSQL accepts: no NUL, no lone surrogates, at most `limit` characters."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")[:limit]


def keyed_digest(content: str) -> str:
    """Return a hash of a text that may hold secrets, with the key of masking."""
    key = hashlib.sha256(b"opsportal records" + settings.MASKING_KEY.encode()).digest()
    return hashlib.blake2b(content.encode("utf-8", "surrogatepass"), key=key, digest_size=16).hexdigest()


@cache
def _fitters() -> dict[str, Callable[[Any], Any]]:
    return {name: _fitter(name, Job._meta.get_field(name)) for name in RECORD_FIELDS}


def _fitter(name: str, field: Any) -> Callable[[Any], Any]:
    """Return the function that makes a value fit its field."""
    if isinstance(field, models.CharField | models.TextField):
        return lambda text: clean_text(str(text), field.max_length or MOST_TEXT)
    if isinstance(field, models.FloatField):
        return lambda value: value if math.isfinite(value) else 0.0
    if limits := _SECONDS if name.endswith("_seconds") else _RANGES.get(field.get_internal_type()):
        low, high = limits
        return lambda value: value if value is None or low <= value <= high else int(max(low, min(value, high)))
    return lambda value: value
