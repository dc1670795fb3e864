"""Import job records from any system: check each one, store good ones, keep bad ones unchanged."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import Flagged, JobRecord, JobState
from apps.clusters.schedulers.plausibility import doubts_of, problem_of
from apps.jobs.domain.collection.accounting import (
    CHUNK,
    flagged_if_wrong,
    split_into_chunks,
    store_read,
)
from apps.jobs.domain.records.calendar_months import dropped_months
from apps.jobs.domain.records.conversion import key_of
from apps.jobs.domain.records.values import BadRecord, read_number, read_time
from apps.jobs.enums import RecordSource
from apps.jobs.models import Collection

_TIMES = frozenset({"submitted_at", "started_at", "ended_at"})
_TYPES = {field.name: str(field.type) for field in fields(JobRecord)}
_NUMBERS = {name: kind for name, kind in _TYPES.items() if "int" in kind or "float" in kind}
_REQUIRED = ("job_id", "state", "submitted_at", "ended_at")
_KNOWN = frozenset(_TYPES)


@dataclass
class ImportedRecords:
    """The number of records that were new, changed, unchanged and rejected.

    `problems` has the number of each rejected record, from 1, and the reason.
    """

    new: int = 0
    changed: int = 0
    unchanged: int = 0
    rejected: int = 0
    problems: list[tuple[int, str]] = field(default_factory=list)

    @property
    def records(self) -> int:
        return self.new + self.changed + self.unchanged + self.rejected


#: Maximum reasons in a response; all are stored with their records.
MOST_PROBLEMS = 100


def import_records(*, cluster: Cluster, records: Iterable[object], at: datetime) -> ImportedRecords:
    """Store records: mappings with the fields of `JobRecord`, or text that could not be parsed.

    Repeating a batch changes nothing. A bad record is kept unchanged with its reason and does not
    affect the others.
    """
    return import_read(cluster=cluster, read=(_read(raw, at) for raw in records), at=at)


def import_read(
    *, cluster: Cluster, read: Iterable[JobRecord | Flagged], at: datetime
) -> ImportedRecords:
    """Store records read from a scheduler's files, as `import_records` does."""
    Collection.objects.get_or_create(
        cluster=cluster, defaults={"collected_until": at, "rechecked_at": at}
    )
    done = ImportedRecords()
    for first, chunk in enumerate(split_into_chunks(read)):
        dropped = dropped_months()
        checked = [flagged_if_wrong(item, at=at, dropped=dropped) for item in chunk]
        counts = store_read(cluster=cluster, read=checked, source=RecordSource.SENT, at=at)
        done.new += counts.new
        done.changed += counts.changed

        good = set()
        for number, item in enumerate(checked, start=first * CHUNK + 1):
            record = item.record if isinstance(item, Flagged) else item
            if isinstance(item, Flagged) and len(done.problems) < MOST_PROBLEMS:
                done.problems.append((number, item.reason))
            if record:
                good.add(key_of(record))
            else:
                done.rejected += 1
        done.unchanged += len(good) - counts.new - counts.changed
    return done


def _read(raw: object, at: datetime) -> JobRecord | Flagged:
    try:
        return record_from(raw, at=at)
    except BadRecord as error:
        if isinstance(raw, str):
            text = raw
        else:
            text = json.dumps(raw, default=str, sort_keys=True)
        return Flagged(text, str(error))


def record_from(raw: object, *, at: datetime) -> JobRecord:
    """Return the record of a mapping; empty texts count as missing. Raises `BadRecord`."""
    if not isinstance(raw, Mapping):
        raise BadRecord("This is not an object with fields.")
    present = {}
    for name, value in raw.items():
        if value not in (None, ""):
            present[str(name)] = value
    if unknown := sorted(present.keys() - _KNOWN):
        raise BadRecord(f"Unknown field {unknown[0][:64]!r}.")
    if missing := [name for name in _REQUIRED if name not in present]:
        raise BadRecord(f"{missing[0]} is missing.")

    values = {name: _value(name, value) for name, value in present.items()}
    number = re.sub(r"[^0-9]", "", str(values["job_id"]).partition("_")[0])
    defaults = {
        "raw_id": int(number[:18] or 0),
        "spool_id": values["job_id"],
        "attempt": 1,
        "exit_code": 0,
        "signal": 0,
        "started_at": None,
    }
    if values.get("started_at") and "wall_seconds" not in values:
        values["wall_seconds"] = max(
            0, round((values["ended_at"] - values["started_at"]).total_seconds())
        )
    record = JobRecord(**{**defaults, **values})
    _check(record, at)
    return record


def _value(name: str, value: object) -> Any:
    if name == "state":
        if str(value).casefold() not in [state.value for state in JobState]:
            raise BadRecord(f"state: {str(value)[:64]!r} is not one of {', '.join(JobState)}.")
        return JobState(str(value).casefold())
    if name in _TIMES:
        return read_time(name, value)
    if name in _NUMBERS:
        number = read_number(name, value, negative=name in {"exit_code", "signal"})
        return number if "float" in _NUMBERS[name] else int(number)
    if isinstance(value, Mapping | list):
        raise BadRecord(f"{name} is not a text.")
    return str(value)


def _check(record: JobRecord, at: datetime) -> None:
    """Raise `BadRecord`, also for doubtful figures, because the sender can correct them."""
    if wrong := problem_of(record, at=at) or " ".join(doubts_of(record)):
        raise BadRecord(wrong)


def lines_of(pieces: Iterable[str]) -> Iterator[object]:
    """Yield the object of each NDJSON line; a line that is not JSON is yielded as text."""
    for line in pieces:
        if text := line.strip():
            try:
                yield json.loads(text, strict=False)
            except (ValueError, RecursionError):
                yield text
