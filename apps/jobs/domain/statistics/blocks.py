"""Write statistics blocks: the jobs of an hour as columns, and their sums by hour and by day.

The recount of an hour writes its blocks. A finished day whose hours are all counted gets daily
blocks, which hold the same sums in fewer rows; recounting one of its hours removes them again.
Every figure therefore equals a recount.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard
from django.db import connection, transaction
from django.db.models import F, FloatField
from django.db.models.functions import Cast, Coalesce, Extract

from apps.core.domain.bulk import rows_where_any
from apps.jobs.domain.records.conversion import day_of
from apps.jobs.domain.statistics.columns import Column, Columns, sum_by, sums_of_jobs
from apps.jobs.domain.statistics.facts import FACTS
from apps.jobs.domain.statistics.levels import (
    ADDED,
    DAILY,
    FIGURES,
    HOURS_OF_DAY,
    JOB,
    JOB_HOURS,
    KIND,
    OF_KIND,
    SITE_HOURS,
    SUMS,
    UTC_HOUR,
    WORK,
    WORK_HOURS,
    BlockLevel,
)
from apps.jobs.enums import DEBUG_STAGE, Counted
from apps.jobs.models import DirtyHour, Job, StatisticsBlock, StatisticsValue

#: Names of all daily levels.
_DAYS = [level.name for level in (*DAILY, *HOURS_OF_DAY)]
#: Before all jobs.
FIRST = datetime(1970, 1, 1, tzinfo=UTC)
DAYS_A_RUN = 10
_DAY_LOCK = 4_716_003
_COMPLETED = "completed"
#: Text dimensions, with the job field of each.
_TEXTS = {
    "experiment": "experiment_id",
    "request": "request_key",
    "cluster": "cluster__name",
    "site": "site__name",
    **{
        name: name for name in ("stage", "release", "user", "account", "host", "cpu_model", "state")
    },
    **{name: name for name in ("exit_code", "signal", "reason")},
}
#: Numeric figures. The database computes those derived from times, so fewer columns are read.
_NUMBERS = {
    "wall": F("wall_seconds"),
    "cores": F("cpus"),
    "cpu": F("cpu_seconds"),
    "queued": Coalesce(
        Cast(Extract(F("started_at") - F("submitted_at"), "epoch"), FloatField()), -1.0
    ),
    "memory": F("max_memory_bytes"),
    "requested": F("requested_memory_bytes"),
    "gpu_count": Coalesce(F("gpus"), 0),
    "gpu_use": Coalesce(F("gpu_share"), -1.0),
    "energy": Coalesce(F("energy_joules"), 0),
}
_MB = 1 << 20
#: More than any job can have; sums of a billion jobs stay exact.
_MOST = 10**12


def lock_day(hour: datetime, *, shared: bool) -> None:
    """Lock a day: `shared` to count one of its hours, exclusively to write its daily blocks."""
    if shared:
        lock = "pg_advisory_xact_lock_shared"
    else:
        lock = "pg_advisory_xact_lock"
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {lock}(%s, %s)", [_DAY_LOCK, int(hour.timestamp()) // 86_400])


def write_hour(*, hour: datetime) -> None:
    """Write the blocks of an hour and delete the blocks of its day, within the recount."""
    lock_day(hour, shared=True)
    StatisticsBlock.objects.filter(bucket=hour, level__in=[JOB.name, WORK.name]).delete()
    StatisticsBlock.objects.filter(bucket=day_of(hour), level__in=_DAYS).delete()

    jobs = Job.objects.filter(ended_at__gte=hour, ended_at__lt=hour + timedelta(hours=1))
    jobs = jobs.exclude(stage__endswith=DEBUG_STAGE).annotate(**_NUMBERS)
    rows = jobs.values_list("pk", *_TEXTS.values(), *_NUMBERS)
    values = list(zip(*rows, strict=True))
    if not values:
        return

    columns = _columns_of(dict(zip(("pk", *_TEXTS, *_NUMBERS), values, strict=True)))
    _write(JOB, hour, columns)
    _write(WORK, hour, sum_by(_with_sums(columns), sorted(WORK.columns), SUMS))


def _with_sums(columns: Columns) -> Columns:
    """Return columns of jobs with the sums added, one row per job."""
    return columns | {"jobs": np.ones(len(columns[KIND]), np.int64)} | sums_of_jobs(columns)


def _columns_of(jobs: Mapping[str, Sequence[Any]]) -> Columns:
    """Return block columns of jobs: dimensions as IDs of their values, and figures."""
    facts: dict[int, dict[str, str]] = {}
    unfinished = []
    for pk, state in zip(jobs["pk"], jobs["state"], strict=True):
        if state != _COMPLETED:
            unfinished.append(pk)
    for plugin in FACTS.working().values():
        for pk, known in plugin(unfinished).items():
            facts.setdefault(pk, {}).update(known)

    values = {name: jobs[name] for name in _TEXTS}
    for name in ("verdict", "cause"):
        values[name] = [facts.get(pk, {}).get(name, "") for pk in jobs["pk"]]
    texts = {}
    for name, column in values.items():
        texts[name] = {value: _text_of(value) for value in set(column)}
    texts["reason"]["None"] = ""
    pairs: set[tuple[str, str]] = set()
    for name, by_value in texts.items():
        for text in by_value.values():
            pairs.add((name, text))
    ids = _ids(pairs)

    columns = {}
    for name, column in values.items():
        numbers = {value: ids[name, text] for value, text in texts[name].items()}
        columns[name] = np.fromiter(map(numbers.__getitem__, column), np.int64, len(column))
    columns[KIND] = _kinds([columns.pop(name) for name in OF_KIND])
    return columns | _figures(jobs)


def _text_of(value: object) -> str:
    return "" if value is None else str(value)[:255]


def _kinds(parts: Sequence[Column]) -> Column:
    """Return the IDs of combinations of `OF_KIND` values.

    A combination is stored as a value of the dimension `kind`; its text lists the IDs of its parts.
    """
    kinds, codes = np.unique(np.stack(parts, axis=1), axis=0, return_inverse=True)
    texts = [" ".join(map(str, kind)) for kind in kinds.tolist()]
    ids = _ids({(KIND, text) for text in texts})
    return np.array([ids[KIND, text] for text in texts])[codes.reshape(-1)]


def _figures(jobs: Mapping[str, Sequence[Any]]) -> Columns:
    wall = np.array(jobs["wall"], np.int64)
    cores = np.array(jobs["cores"], np.int64)
    memory = _with_unknown(jobs["memory"])
    requested = _with_unknown(jobs["requested"])
    cpu = np.array(jobs["cpu"], float)
    queued = np.array(jobs["queued"], float)
    gpu_seconds = np.minimum(wall * np.array(jobs["gpu_count"], np.int64), _MOST)
    gpu_use = np.array(jobs["gpu_use"], float)
    figures = {
        "core_seconds": np.minimum(wall * cores, _MOST),
        "cpu_ms": np.rint(np.clip(cpu, 0, _MOST) * 1000),
        "wall_seconds": np.minimum(wall, _MOST),
        "queued_seconds": np.where(queued < 0, -1, np.rint(queued)),
        "memory_mb": np.where(memory < 0, -1, np.minimum(memory // _MB, _MOST)),
        "requested_mb": np.where(requested < 0, -1, np.minimum(requested // _MB, _MOST)),
        "gpu_seconds": gpu_seconds,
        "gpu_used_seconds": np.where(
            gpu_use < 0, -1, np.rint(np.clip(gpu_use, 0, 1) * gpu_seconds)
        ),
        "energy_joules": np.clip(np.array(jobs["energy"], np.int64), 0, _MOST),
    }
    return {name: figures[name].astype(np.int64) for name in FIGURES}


def _with_unknown(values: Sequence[int | None]) -> npt.NDArray[np.int64]:
    """Return the values with -1 in place of None."""
    return np.array([-1 if value is None else value for value in values], np.int64)


def _ids(pairs: Collection[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Return the IDs of values by dimension and text, creating new values in sorted order.

    The order prevents deadlocks between writers.
    """
    known = _known_ids(pairs)
    if missing := sorted(set(pairs) - known.keys()):
        rows = [StatisticsValue(dimension=dimension, text=text) for dimension, text in missing]
        StatisticsValue.objects.bulk_create(rows, ignore_conflicts=True)
        known |= _known_ids(missing)
    return known


def _known_ids(pairs: Collection[tuple[str, str]]) -> dict[tuple[str, str], int]:
    rows = rows_where_any(
        StatisticsValue, ("dimension", "text", "id"), "text", list({text for _, text in pairs})
    )
    return {(dimension, text): pk for dimension, text, pk in rows}


def _write(level: BlockLevel, bucket: datetime, columns: Columns) -> None:
    rows = len(columns[KIND])
    names = [*sorted(level.columns), *(FIGURES if level.of_jobs else SUMS)]
    StatisticsBlock.objects.bulk_create(
        StatisticsBlock(
            level=level.name,
            column=name,
            bucket=bucket,
            rows=rows,
            data=compress_values(columns[name]),
        )
        for name in names
    )


def compress_values(column: Column) -> bytes:
    """Return the values as little-endian integers of the smallest size that fits all of them."""
    low = int(column.min())
    high = int(column.max())
    size = next(
        size for size in (1, 2, 4, 8) if -(1 << 8 * size - 1) <= low and high < 1 << 8 * size - 1
    )
    narrow = column.astype(f"<i{size}").tobytes()
    return zstandard.ZstdCompressor(level=3).compress(narrow)


def column_of(rows: int, data: bytes, decompress: Callable[[bytes], bytes]) -> Column:
    """Return the column of a block."""
    content = decompress(data)
    return np.frombuffer(content, f"<i{len(content) // rows}")


def compact_days(*, at: datetime, limit: int = DAYS_A_RUN) -> int:
    """Write missing daily blocks of finished days, newest first; return the number of days."""
    today = day_of(at)
    days = days_without_blocks(before=today) - days_to_recount(before=today)
    newest = sorted(days, reverse=True)[:limit]
    for day in newest:
        compact_day(day=day)
    return len(newest)


def days_without_blocks(*, before: datetime, since: datetime = FIRST) -> set[datetime]:
    """Return the days that have counted hours and no daily blocks."""
    states = StatisticsBlock.objects.filter(column=KIND, bucket__gte=since, bucket__lt=before)
    hours = states.filter(level=WORK.name).values_list("bucket", flat=True)
    days = states.filter(level=DAILY[0].name).values_list("bucket", flat=True)
    return {day_of(hour) for hour in hours} - {*days}


def days_to_recount(*, before: datetime) -> set[datetime]:
    """Return the days with hours that wait for a recount."""
    hours = DirtyHour.objects.filter(counts=Counted.JOBS, hour__lt=before).distinct()
    return {day_of(hour) for hour in hours.values_list("hour", flat=True)}


def _joined(hours: Sequence[Columns]) -> Columns:
    """Return the columns of several hours, one after the other; added columns are 0 before."""
    names = ADDED.union(*hours)
    joined = {}
    for name in names:
        pieces = []
        for of_hour in hours:
            rows = len(of_hour[KIND])
            pieces.append(of_hour.get(name, np.zeros(rows, np.int64)).astype(np.int64))
        joined[name] = np.concatenate(pieces)
    return joined


@transaction.atomic
def compact_day(*, day: datetime) -> None:
    """Write the daily blocks of a day from the blocks of its hours."""
    lock_day(day, shared=False)
    StatisticsBlock.objects.filter(bucket=day, level__in=_DAYS).delete()
    hours = StatisticsBlock.objects.filter(bucket__gte=day, bucket__lt=day + timedelta(days=1))
    parts: dict[str, dict[datetime, Columns]] = {JOB.name: {}, WORK.name: {}}
    decompress = zstandard.ZstdDecompressor().decompress
    for block in hours.filter(level__in=list(parts)).order_by("bucket").iterator():
        of_hour = parts[block.level].setdefault(block.bucket, {})
        of_hour[block.column] = column_of(block.rows, bytes(block.data), decompress)
        if block.column == KIND:
            hour = block.bucket.astimezone(UTC).hour
            of_hour[UTC_HOUR] = np.full(block.rows, hour)
    if not parts[JOB.name]:
        return

    columns = {name: _joined(list(of_level.values())) for name, of_level in parts.items()}
    _write(JOB_HOURS, day, columns[JOB.name])
    sums = {WORK.name: columns[WORK.name], JOB.name: _with_sums(columns[JOB.name])}
    for level in (*DAILY, WORK_HOURS, SITE_HOURS):
        source = sums[WORK.name if WORK.has(level.dimensions) else JOB.name]
        _write(level, day, sum_by(source, sorted(level.columns), SUMS))
