"""Check the plausibility of records.

A bad record is flagged with the reason, and with the record itself if the rest can be trusted.
"""

import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from apps.clusters.schedulers.base import Flagged, JobRecord

#: The clocks of other systems may be ahead by this much.
AHEAD = timedelta(minutes=5)
#: Longer texts are truncated when stored.
MOST_TEXT = 64_000
#: Measured times may exceed their limit by this factor: CPU time is sampled, clocks are rounded.
_TOLERANCE = 1.1
_TOLERANCE_SECONDS = 60
_TEXTS = ("name", "comment", "work_dir", "submit_line", "stdout_path", "stderr_path")


def checked(
    record: JobRecord, raw: Callable[[], str], doubts: Sequence[str] = ()
) -> JobRecord | Flagged:
    """Return a record, flagged if it is wrong or doubtful.

    `doubts` are sentences that the adapter adds.
    """
    if problem := problem_of(record):
        return Flagged(raw(), problem)
    if sentences := " ".join((*doubts, *doubts_of(record))):
        return Flagged(raw(), sentences, record)
    return record


def problem_of(record: JobRecord, *, at: datetime | None = None) -> str:
    """Return why the times of a record are impossible, also as of `at`; "" if they are possible."""
    if at and record.ended_at > at + AHEAD:
        return "ended_at is in the future."
    if record.ended_at < (record.started_at or record.submitted_at):
        return "The job ended before it started."
    if record.started_at and record.started_at < record.submitted_at - AHEAD:
        return "The job started before it was submitted."
    return ""


def doubts_of(record: JobRecord) -> list[str]:
    """Return sentences on the figures and texts of a record that cannot be right."""
    doubts = []
    if not math.isfinite(record.cpu_seconds):
        doubts.append("cpu_seconds is not a number.")
    elif (
        record.wall_seconds
        and record.cpus
        and _exceeds(record.cpu_seconds, record.wall_seconds * record.cpus)
    ):
        doubts.append("cpu_seconds exceeds wall_seconds × cpus. Are the units seconds?")
    # Some schedulers sum the times of all attempts.
    first_start = record.started_at if record.attempt == 1 else None
    if first_start and _exceeds(
        record.wall_seconds, (record.ended_at - first_start).total_seconds()
    ):
        doubts.append("wall_seconds exceeds the time from start to end. Are the units seconds?")
    too_long = [name for name in _TEXTS if len(getattr(record, name)) > MOST_TEXT]
    return doubts + [f"{name} is longer than {MOST_TEXT:,} characters." for name in too_long]


def _exceeds(seconds: float, limit: float) -> bool:
    return seconds > _TOLERANCE_SECONDS + _TOLERANCE * limit
