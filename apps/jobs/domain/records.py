"""From an adapter's record to the fields of a job row, and back. No writes here."""

import math
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any

from django.db import models

from apps.clusters.schedulers.base import JobRecord, JobState
from apps.jobs.models import Job

#: What identifies one attempt within its cluster.
Key = tuple[str, datetime, int]

#: The fields that come from accounting, and so may be corrected by it later.
RECORD_FIELDS = tuple(JobRecord.__dataclass_fields__)

_RANGES = {
    "PositiveIntegerField": (0, 2**31 - 1),
    "IntegerField": (-(2**31), 2**31 - 1),
    "BigIntegerField": (-(2**63), 2**63 - 1),
}
#: Times by cores must fit as well.
_SECONDS = (0, 2**31 - 1)


def key_of(record: JobRecord | Job) -> Key:
    """Return what identifies this attempt within its cluster."""
    return record.job_id, record.submitted_at, record.attempt


def values_of(record: JobRecord) -> dict[str, Any]:
    """Return the record's values as the database can hold them, so that one odd record cannot stop the others."""
    return {name: mend(getattr(record, name)) for name, mend in _menders().items()}


def record_of(job: Job) -> JobRecord:
    """Return the record that a job row was made from."""
    values = {name: getattr(job, name) for name in RECORD_FIELDS}
    return JobRecord(**{**values, "state": JobState(job.state)})


def differences(job: Job, values: dict[str, Any]) -> dict[str, Any]:
    """Return those of `values` that the row does not hold yet."""
    return {name: value for name, value in values.items() if getattr(job, name) != value}


def hour_of(at: datetime) -> datetime:
    """Return the start of the hour, in UTC, that a time lies in."""
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def clean_text(text: str, limit: int | None = None) -> str:
    """Return text that PostgreSQL takes: no NUL, no half characters, no longer than `limit`."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")[:limit]


@cache
def _menders() -> dict[str, Callable[[Any], Any]]:
    return {name: _mender(name, Job._meta.get_field(name)) for name in RECORD_FIELDS}


def _mender(name: str, field: Any) -> Callable[[Any], Any]:
    """Return the function that makes a value fit its field; one that fits already comes back as it is."""
    if isinstance(field, models.CharField | models.TextField):
        return lambda text: clean_text(str(text), field.max_length)
    if isinstance(field, models.FloatField):
        return lambda value: value if math.isfinite(value) else 0.0
    if limits := _SECONDS if name.endswith("_seconds") else _RANGES.get(field.get_internal_type()):
        low, high = limits
        return lambda value: value if value is None or low <= value <= high else int(max(low, min(value, high)))
    return lambda value: value
