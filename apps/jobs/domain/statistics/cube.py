"""Read statistics blocks: count jobs by some dimensions in a period, with filters, at any size in bounded memory."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property

import numpy as np
import psycopg
import zstandard
from django.db import connection

from apps.jobs.domain.statistics.blocks import column_of, day_of
from apps.jobs.domain.statistics.columns import (
    DAILY,
    FIGURES,
    HOURLY,
    JOB,
    OF_HOUR,
    Column,
    Columns,
    Level,
    grouped,
    sums_of_jobs,
)
from apps.jobs.domain.statistics.windows import hour_of_week, window_of
from apps.jobs.enums import FAILED_STATES, INTERRUPTED_STATES
from apps.jobs.models import StatisticsValue

#: The dimension of a time series: the start of the hour or UTC day, in hours since 1970.
TIME = "time"
#: Read at once: hours with one row per job, else days.
_SLICE = {True: timedelta(days=31), False: timedelta(days=5)}
#: Cells of a slice that are counted in an array; more of them are sorted.
_MOST_CELLS = 4_000_000
#: Figures from which sums follow.
_SOURCES = {
    "started": ("queued_seconds",),
    "memory_mb": ("memory_mb", "requested_mb"),
    "requested_mb": ("memory_mb", "requested_mb"),
}


def outcome_ids() -> tuple[frozenset[int], frozenset[int]]:
    """Return the IDs of the states of failed and of interrupted jobs."""
    ids = dict(StatisticsValue.objects.filter(dimension="state").values_list("text", "pk"))
    return (
        frozenset(ids[state] for state in FAILED_STATES if state in ids),
        frozenset(ids[state] for state in INTERRUPTED_STATES if state in ids),
    )


@dataclass(frozen=True)
class Query:
    """What to count: jobs that finished in [since, until), whole hours, by dimensions.

    `filters` has, for a dimension, the IDs of its values (numbers, for the dimensions of the hour). `step_hours` is
    that of the time series, if `TIME` is among the dimensions.
    """

    since: datetime
    until: datetime
    by: tuple[str, ...] = ()
    filters: Mapping[str, frozenset[int]] = field(default_factory=dict)
    sums: frozenset[str] = frozenset({"jobs", "core_seconds"})
    step_hours: int = 24
    outcomes: tuple[frozenset[int], frozenset[int]] = field(default_factory=outcome_ids)

    @cached_property
    def stored(self) -> frozenset[str]:
        """The stored dimensions it reads; the state decides what failed."""
        return frozenset({*self.by, *self.filters, "state"}) - OF_HOUR.keys() - {TIME}

    @cached_property
    def of_hour(self) -> frozenset[str]:
        return frozenset({*self.by, *self.filters}) & OF_HOUR.keys()

    @cached_property
    def levels(self) -> tuple[Level | None, Level]:
        """The narrowest levels that have its dimensions: of days, if whole days do, and of hours."""
        by_hour = self.of_hour or (TIME in self.by and self.step_hours < 24)
        daily = None if by_hour else next((level for level in DAILY if level.has(self.stored)), None)
        return daily, next(level for level in HOURLY if level.has(self.stored))


def count(query: Query) -> Columns:
    """Return a row for each combination of values that occurs: their IDs, `failed`, `interrupted` and the sums.

    `failed` and `interrupted` are jobs; `wasted_core_seconds` are those of failed ones.
    """
    sums = query.sums | {"jobs"}
    parts = [_counted(query, columns, sorted(sums)) for columns in _slices(query, sums)]
    names = [*query.by, "outcome"]
    if not parts:
        cells: Columns = {name: np.zeros(0, np.int64) for name in [*names, *sums]}
    else:
        cells = {name: np.concatenate([part[name] for part in parts]) for name in [*names, *sums]}
    cells["failed"] = np.where(cells["outcome"] == 1, cells["jobs"], 0)
    cells["interrupted"] = np.where(cells["outcome"] == 2, cells["jobs"], 0)
    if "core_seconds" in sums:
        cells["wasted_core_seconds"] = np.where(cells["outcome"] == 1, cells["core_seconds"], 0)
        cells["interrupted_core_seconds"] = np.where(cells["outcome"] == 2, cells["core_seconds"], 0)
    return grouped(cells, query.by, cells.keys() - {*query.by, "outcome"})


def figures(query: Query, names: Collection[str]) -> Iterator[Columns]:
    """Yield figures of the single jobs that a query counts, part by part; -1 where unknown."""
    for since, until in _parts(query, _SLICE[False]):
        blocks = _blocks(None, JOB, {*query.stored, *names}, since, until)
        if blocks:
            columns = _joined(query, JOB, blocks)
            yield {name: columns[name] for name in names}


def _parts(query: Query, length: timedelta) -> Iterator[tuple[datetime, datetime]]:
    since = query.since
    while since < query.until:
        until = min(day_of(since) + length, query.until)
        yield since, until
        since = until


def _slices(query: Query, sums: Collection[str]) -> Iterator[Columns]:
    """Yield dimensions and sums of the rows that match the filters, part by part."""
    daily, hourly = query.levels
    for since, until in _parts(query, _SLICE[daily is not None or hourly is not JOB]):
        blocks = _blocks(daily, hourly, _needed(query, sums, daily, hourly), since, until)
        for level in filter(None, (daily, hourly)):
            of_level = {key: value for key, value in blocks.items() if key[0] == level.name}
            if of_level:
                columns = _joined(query, level, of_level)
                rows = len(columns["state"])
                yield columns | sums_of_jobs(columns, rows) if level is JOB else columns


def _needed(query: Query, sums: Collection[str], daily: Level | None, hourly: Level) -> set[str]:
    needed = set(query.stored)
    if daily or hourly is not JOB:
        needed |= set(sums)
    if hourly is JOB:
        needed |= {name for total in sums for name in _SOURCES.get(total, (total,)) if name in FIGURES}
    return needed


#: The data and number of rows of a column, by level, start in hours since 1970, and column.
_Blocks = dict[tuple[str, int, str], tuple[int, bytes]]

#: One statement, so that a day is either daily blocks or its hours, whatever is recounted meanwhile.
_READ = """
WITH whole AS MATERIALIZED (
    SELECT bucket FROM jobs_statisticsblock
    WHERE level = %(daily)s AND "column" = 'state' AND bucket >= %(since)s AND bucket < %(until)s
      AND bucket + interval '1 day' <= %(until)s)
SELECT level, (extract(epoch FROM bucket) / 3600)::int, "column", rows, data FROM jobs_statisticsblock
WHERE level = %(daily)s AND "column" = ANY(%(columns)s) AND bucket IN (SELECT bucket FROM whole)
UNION ALL
SELECT level, (extract(epoch FROM bucket) / 3600)::int, "column", rows, data FROM jobs_statisticsblock
WHERE level = %(hourly)s AND "column" = ANY(%(columns)s) AND bucket >= %(since)s AND bucket < %(until)s
  AND date_trunc('day', bucket, 'UTC') NOT IN (SELECT bucket FROM whole)
"""


def _blocks(daily: Level | None, hourly: Level, columns: Collection[str], since: datetime, until: datetime) -> _Blocks:
    values = {"daily": daily.name if daily else "", "hourly": hourly.name, "columns": sorted(columns)}
    connection.ensure_connection()
    # In binary form, which Django's cursors have no option for: as text, bytes are twice as long.
    with psycopg.Cursor(connection.connection) as cursor:
        cursor.execute(_READ, values | {"since": since, "until": until}, binary=True)
        return {(level, hour, name): (rows, data) for level, hour, name, rows, data in cursor}


def _joined(query: Query, level: Level, blocks: _Blocks) -> Columns:
    """Return the columns of all blocks, one after the other, without the rows that the filters leave out."""
    decompress = zstandard.ZstdDecompressor().decompress
    hours = sorted({hour for _, hour, _ in blocks})
    lengths = [blocks[level.name, hour, "state"][0] for hour in hours]
    columns: Columns = {}
    kept: Column | None = None
    for name in query.of_hour | ({TIME} & {*query.by}):
        columns[name] = np.repeat([_of_hour(name, hour, query.step_hours) for hour in hours], lengths)
    for name in {name for _, _, name in blocks}:
        columns[name] = np.concatenate([column_of(*blocks[level.name, hour, name], decompress) for hour in hours])
    for name, wanted in query.filters.items():
        matching = _member(columns[name], wanted)
        kept = matching if kept is None else kept & matching
    if kept is not None:
        columns = {name: column[kept] for name, column in columns.items()}
    return columns


def _of_hour(name: str, hour: int, step: int) -> int:
    if name == TIME:
        return hour - hour % step
    at = datetime.fromtimestamp(hour * 3600, UTC)
    if name == "window":
        return window_of(at)
    return hour_of_week(at) % 24 if name == "hour" else hour_of_week(at) // 24


def _member(column: Column, wanted: Collection[int]) -> Column:
    """Return where a column of small numbers has one of these values."""
    table = np.zeros(int(column.max(initial=0)) + 1, bool)
    table[[value for value in wanted if value < len(table)]] = True
    return table[column]


def _counted(query: Query, columns: Columns, sums: Collection[str]) -> Columns:
    """Return the sums by the dimensions and `outcome`: 0 completed, 1 failed, 2 interrupted."""
    failed, interrupted = query.outcomes
    outcomes = _member(columns["state"], failed) + 2 * _member(columns["state"], interrupted).astype(np.int8)
    keys, present, size = outcomes.astype(np.int64), [np.arange(3)], 3
    for name in query.by:
        values, codes = _dense(columns[name])
        keys = keys + size * codes
        size *= max(len(values), 1)
        present.append(values)
    if size > _MOST_CELLS:
        cells, keys = np.unique(keys, return_inverse=True)
        size = len(cells)
    else:
        cells = np.arange(size)
    jobs = np.bincount(keys, columns["jobs"], minlength=size) if size else np.zeros(0)
    found = np.flatnonzero(jobs)
    result = {"jobs": np.rint(jobs[found]).astype(np.int64)}
    for name in (name for name in sums if name != "jobs"):
        result[name] = np.rint(np.bincount(keys, columns[name], minlength=size)[found]).astype(np.int64)
    rest = cells[found]
    for name, values in zip(["outcome", *query.by], present, strict=True):
        result[name] = values[rest % max(len(values), 1)].astype(np.int64)
        rest = rest // max(len(values), 1)
    return result


def _dense(column: Column) -> tuple[Column, Column]:
    """Return the values that occur in a column of numbers, and the number of each row's value among them."""
    values = np.flatnonzero(np.bincount(column))
    table = np.zeros(int(values.max(initial=0)) + 1, np.int64)
    table[values] = np.arange(len(values))
    return values, table[column]
