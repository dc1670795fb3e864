"""Count jobs by dimensions in a period, with filters, from statistics blocks.

Memory is bounded whatever the size of the period.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property

import numpy as np
import numpy.typing as npt
import psycopg
import zstandard
from django.db import connection
from django.db.models import QuerySet

from apps.jobs.domain.records.conversion import day_of
from apps.jobs.domain.statistics.blocks import column_of
from apps.jobs.domain.statistics.columns import (
    MOST_CELLS,
    Column,
    Columns,
    encode_column,
    sum_by,
    sums_of_jobs,
)
from apps.jobs.domain.statistics.levels import (
    ADDED,
    DAILY,
    FIGURES,
    HOURLY,
    HOURS_OF_DAY,
    JOB,
    JOB_HOURS,
    KIND,
    MONTHLY,
    OF_HOUR,
    OF_KIND,
    UTC_HOUR,
    BlockLevel,
)
from apps.jobs.domain.statistics.monthly import end_of_month, is_month, read_month
from apps.jobs.domain.statistics.questions import start_of_step
from apps.jobs.domain.statistics.windows import hour_of_week, window_of
from apps.jobs.enums import FAILED_STATES, INTERRUPTED_STATES
from apps.jobs.models import StatisticsValue

#: Jobs that agree in these dimensions are expected to fail equally often.
ALIKE = ("experiment", "stage", "release")
#: The dimension of a time series: start of the hour, UTC day or week, in hours since 1970.
TIME = "time"
#: Periods read at once: of blocks with sums, and of blocks with one row per job.
_SUMS_AT_ONCE = timedelta(days=31)
_JOBS_AT_ONCE = timedelta(days=10)
#: Figures from which each sum is computed.
_SOURCES = {
    "started": ("queued_seconds",),
    "memory_mb": ("memory_mb", "requested_mb"),
    "requested_mb": ("memory_mb", "requested_mb"),
    "gpu_measured_seconds": ("gpu_used_seconds", "gpu_seconds"),
}


def outcome_ids() -> tuple[frozenset[int], frozenset[int]]:
    """Return the IDs of the failed states and of the interrupted states."""
    ids = dict(StatisticsValue.objects.filter(dimension="state").values_list("text", "pk"))
    failed = set()
    interrupted = set()
    for state, pk in ids.items():
        if state in FAILED_STATES:
            failed.add(pk)
        elif state in INTERRUPTED_STATES:
            interrupted.add(pk)
    return frozenset(failed), frozenset(interrupted)


class Kinds:
    """Experiment, stage, release and state of each kind, cached: there are few kinds."""

    def __init__(self) -> None:
        self._parts: dict[int, list[int]] = {}

    def parts(self, ids: Column) -> Columns:
        """Return the four dimensions of kinds as columns."""
        pks = ids.tolist()
        if not self._parts:
            self._read(StatisticsValue.objects.filter(dimension=KIND))
        # Kinds may have been added since the first read.
        if new := [pk for pk in pks if pk not in self._parts]:
            self._read(StatisticsValue.objects.filter(pk__in=new))
        rows = np.array([self._parts[pk] for pk in pks], np.int64).reshape(-1, len(OF_KIND))
        return {name: rows[:, index] for index, name in enumerate(OF_KIND)}

    def _read(self, values: QuerySet[StatisticsValue]) -> None:
        for pk, text in values.values_list("pk", "text"):
            self._parts[pk] = [int(part) for part in text.split()]

    def matching(self, ids: Column, filters: Mapping[str, Collection[int]]) -> list[int]:
        """Return the IDs of the kinds that match the filters."""
        parts = self.parts(ids)
        kept = np.ones(len(ids), bool)
        for name in filters.keys() & {*OF_KIND}:
            kept &= np.isin(parts[name], list(filters[name]))
        matching: list[int] = ids[kept].tolist()
        return matching


@dataclass(frozen=True)
class CubeQuery:
    """Describes what to count: jobs that finished in [since, until), in whole hours, by dimensions.

    `filters` maps dimensions to IDs of their values, or to numbers for dimensions of the hour.
    `step_hours` is the step of the time series if `by` contains `TIME`.
    """

    since: datetime
    until: datetime
    by: tuple[str, ...] = ()
    filters: Mapping[str, frozenset[int]] = field(default_factory=dict)
    sums: frozenset[str] = frozenset({"jobs", "core_seconds"})
    step_hours: int = 24
    outcomes: tuple[frozenset[int], frozenset[int]] = field(default_factory=outcome_ids)
    kinds: Kinds = field(default_factory=Kinds)
    #: Failure rates by the IDs of experiment, stage and release, to compute `expected`; or None.
    rates: Mapping[tuple[int, ...], float] | None = None

    @cached_property
    def stored(self) -> frozenset[str]:
        """The stored dimensions needed. The state is always needed, to recognise failures."""
        alike = ALIKE if self.rates is not None else ()
        return frozenset({*self.by, *self.filters, *alike, "state"}) - OF_HOUR.keys() - {TIME}

    @cached_property
    def of_hour(self) -> frozenset[str]:
        return frozenset({*self.by, *self.filters}) & OF_HOUR.keys()

    @cached_property
    def levels(self) -> tuple[BlockLevel, BlockLevel]:
        """The smallest daily and hourly levels that have these dimensions."""
        by_hour = self.of_hour or (TIME in self.by and self.step_hours < 24)
        candidates = HOURS_OF_DAY if by_hour else (*DAILY, *HOURS_OF_DAY)
        daily = next(level for level in candidates if level.has(self.stored))
        return daily, next(level for level in HOURLY if level.has(self.stored))

    @cached_property
    def monthly(self) -> BlockLevel | None:
        """The monthly level that has these dimensions; None if days or hours are told apart."""
        if TIME in self.by:
            return None
        return MONTHLY.get(self.levels[0])

    @cached_property
    def columns(self) -> frozenset[str]:
        """The stored columns of these dimensions."""
        return (self.stored - {*OF_KIND}) | {KIND}


def count(query: CubeQuery) -> Columns:
    """Return a row for each combination of values that occurs: IDs, outcomes and sums.

    `failed` and `interrupted` are numbers of jobs. `wasted_core_seconds` are the core-seconds of
    failed jobs. With `rates`, `expected` is the number of jobs that would have failed at these
    rates.
    """
    sums = query.sums | {"jobs"}
    parts = [_counted(query, columns, sorted(sums)) for columns in _slices(query, sums)]
    names = [*query.by, "outcome", *sums]
    if query.rates is not None:
        names.append("expected")

    cells: Columns = {}
    for name in names:
        if parts:
            cells[name] = np.concatenate([part[name] for part in parts])
        else:
            cells[name] = np.zeros(0, np.int64)
    cells["failed"] = np.where(cells["outcome"] == 1, cells["jobs"], 0)
    cells["interrupted"] = np.where(cells["outcome"] == 2, cells["jobs"], 0)
    if "core_seconds" in sums:
        cells["wasted_core_seconds"] = np.where(cells["outcome"] == 1, cells["core_seconds"], 0)
        cells["interrupted_core_seconds"] = np.where(
            cells["outcome"] == 2, cells["core_seconds"], 0
        )
    return sum_by(cells, query.by, cells.keys() - {*query.by, "outcome"})


def read_figures(query: CubeQuery, names: Collection[str]) -> Iterator[Columns]:
    """Yield figures of the single jobs that a query counts, in parts; -1 where unknown."""
    for since, until in _parts(query, _JOBS_AT_ONCE):
        needed = {*query.columns, *names}
        for level, of_level in _blocks(JOB_HOURS, JOB, needed, since, until).items():
            columns = _joined(query, level, of_level, needed)
            yield {name: columns[name] for name in names}


def _parts(query: CubeQuery, length: timedelta) -> Iterator[tuple[datetime, datetime]]:
    since = query.since
    while since < query.until:
        until = min(day_of(since) + length, query.until)
        yield since, until
        since = until


def _months(query: CubeQuery) -> Iterator[tuple[datetime, datetime]]:
    """Yield the months of a query; the first and the last may be cut."""
    since = query.since
    while since < query.until:
        until = min(end_of_month(since), query.until)
        yield since, until
        since = until


#: Number of rows and data of a column, by start in hours since 1970 and column name.
_Blocks = dict[tuple[int, str], tuple[int, bytes]]


def _slices(query: CubeQuery, sums: Collection[str]) -> Iterator[Columns]:
    """Yield dimensions and sums of the rows that match the filters, in parts.

    Without a column `jobs`, each row is one job.
    """
    daily, hourly = query.levels
    needed = _needed(query, sums)
    if query.monthly:
        parts = _months(query)
    else:
        parts = _parts(query, _JOBS_AT_ONCE if daily.of_jobs else _SUMS_AT_ONCE)
    for since, until in parts:
        of_levels = _of_month(query, needed, since, until)
        of_levels = of_levels or _blocks(daily, hourly, needed, since, until)
        for level, blocks in of_levels.items():
            columns = _joined(query, level, blocks, needed)
            yield columns | sums_of_jobs(columns) if level.of_jobs else columns


def _of_month(
    query: CubeQuery, needed: Collection[str], since: datetime, until: datetime
) -> dict[BlockLevel, _Blocks]:
    """Return the monthly blocks of this part; nothing if it is no month, or has none."""
    level = query.monthly
    if level is None or not is_month(since, until):
        return {}
    start = int(since.timestamp()) // 3600
    blocks = {(start, name): block for name, block in read_month(level, since, needed).items()}
    return {level: blocks} if blocks else {}


def _needed(query: CubeQuery, sums: Collection[str]) -> set[str]:
    """Return the columns to read: sums, or figures if the level has single jobs."""
    needed = {*query.columns, *sums}
    if any(level.of_jobs for level in query.levels):
        for total in sums:
            needed |= set(FIGURES).intersection(_SOURCES.get(total, (total,)))
    return needed


#: One statement, so that each day comes either from daily blocks or from its hours, even while it
#: is recounted. Only hours of days without daily blocks are looked up: they are few, and to filter
#: all hours of the period takes most of the time.
_READ = """
WITH whole AS MATERIALIZED (
    SELECT bucket FROM jobs_statisticsblock
    WHERE level = %(daily)s AND "column" = 'kind' AND bucket >= %(since)s AND bucket < %(until)s
      AND bucket + interval '24 hours' <= %(until)s),
hours AS MATERIALIZED (
    SELECT hour FROM generate_series(
        %(since)s::timestamptz, %(until)s::timestamptz - interval '1 hour', interval '1 hour'
    ) AS hour
    WHERE date_trunc('day', hour, 'UTC') NOT IN (SELECT bucket FROM whole))
SELECT level, (extract(epoch FROM bucket) / 3600)::int, "column", rows, data
FROM jobs_statisticsblock
WHERE level = %(daily)s AND "column" = ANY(%(columns)s) AND bucket IN (SELECT bucket FROM whole)
UNION ALL
SELECT level, (extract(epoch FROM bucket) / 3600)::int, "column", rows, data
FROM hours JOIN jobs_statisticsblock ON bucket = hour
WHERE level = %(hourly)s AND "column" = ANY(%(columns)s)
"""


def _blocks(
    daily: BlockLevel,
    hourly: BlockLevel,
    columns: Collection[str],
    since: datetime,
    until: datetime,
) -> dict[BlockLevel, _Blocks]:
    names = sorted(columns)
    if daily.by_hour:
        names.append(UTC_HOUR)
    values = {
        "daily": daily.name,
        "hourly": hourly.name,
        "columns": names,
        "since": since,
        "until": until,
    }
    levels = {level.name: level for level in (daily, hourly)}
    blocks: dict[BlockLevel, _Blocks] = {}
    connection.ensure_connection()
    # Django's cursors cannot fetch in binary format; as text, the bytes would take twice the space.
    with psycopg.Cursor(connection.connection) as cursor:
        cursor.execute(_READ, values, binary=True)
        for level, hour, name, rows, data in cursor:
            blocks.setdefault(levels[level], {})[hour, name] = rows, data
    return blocks


def _joined(
    query: CubeQuery, level: BlockLevel, blocks: _Blocks, needed: Collection[str]
) -> Columns:
    """Return the columns of all blocks concatenated, with only the rows that match the filters."""
    starts = sorted({hour for hour, _ in blocks})
    pieces = _pieces(blocks, starts, needed)

    columns: Columns = {}
    for name in query.of_hour | ({TIME} & {*query.by}):
        of_hours = []
        for index, (start, kind) in enumerate(zip(starts, pieces[KIND], strict=True)):
            hours = pieces[UTC_HOUR][index] if level.by_hour else None
            of_hours.append(_of_hours(name, start, len(kind), hours, query.step_hours))
        columns[name] = np.concatenate(of_hours)
    for name, of_name in pieces.items():
        if name != UTC_HOUR:
            columns[name] = np.concatenate(of_name)

    kept: Column | None = None
    if query.filters.keys() & {*OF_KIND}:
        there = np.flatnonzero(np.bincount(columns[KIND]))
        kept = _member(columns[KIND], query.kinds.matching(there, query.filters))
    for name in query.filters.keys() - {*OF_KIND}:
        matching = _member(columns[name], query.filters[name])
        kept = matching if kept is None else kept & matching
    if kept is not None:
        columns = {name: column[kept] for name, column in columns.items()}
    return columns


def _pieces(
    blocks: _Blocks, starts: Sequence[int], needed: Collection[str]
) -> dict[str, list[Column]]:
    """Return the columns of blocks by name; what older blocks lack is 0."""
    decompress = zstandard.ZstdDecompressor().decompress
    pieces: dict[str, list[Column]] = {}
    for name in {name for _, name in blocks} | ADDED.intersection(needed):
        pieces[name] = []
        for start in starts:
            if (start, name) in blocks:
                pieces[name].append(column_of(*blocks[start, name], decompress))
            else:
                pieces[name].append(np.zeros(blocks[start, KIND][0], np.int64))
    return pieces


def _of_hours(name: str, start: int, rows: int, utc_hours: Column | None, step: int) -> Column:
    """Return a dimension of the hour for the rows of one block.

    `utc_hours` is the `UTC_HOUR` column of a daily block, None for a block of one hour.
    """
    if utc_hours is None:
        return np.full(rows, _of_hour(name, start, step))
    return np.array([_of_hour(name, start + hour, step) for hour in range(24)])[utc_hours]


def _of_hour(name: str, hour: int, step: int) -> int:
    if name == TIME:
        return start_of_step(hour, step)
    at = datetime.fromtimestamp(hour * 3600, UTC)
    if name == "window":
        return window_of(at)
    if name == "hour":
        return hour_of_week(at) % 24
    return hour_of_week(at) // 24


def _member(column: Column, values: Collection[int]) -> Column:
    """Return a mask of the rows whose value, a small number, is in `values`."""
    table = np.zeros(int(column.max(initial=0)) + 1, bool)
    table[[value for value in values if value < len(table)]] = True
    return table[column]


class _Keys:
    """A number for each row, which stands for the combination of its values.

    It is the code of the first dimension, plus the code of the next one times the number of codes
    of the first, and so on.
    """

    def __init__(self, rows: int) -> None:
        self.of_rows = np.zeros(rows, np.int64)
        self.possible = 1
        self._dimensions: list[tuple[Sequence[str], Column]] = []

    def add(self, names: Sequence[str], values: Column, codes: Column) -> None:
        """Add dimensions: each row has the values in the line of `values` with its code."""
        self.of_rows += self.possible * codes
        self.possible *= max(len(values), 1)
        self._dimensions.append((names, values))

    def decode(self, keys: Column) -> Columns:
        """Return the values that these keys stand for, by dimension."""
        columns: Columns = {}
        for names, values in self._dimensions:
            possible = max(len(values), 1)
            codes = keys % possible
            keys = keys // possible
            for number, name in enumerate(names):
                columns[name] = values[codes, number]
        return columns


def _keys_of(query: CubeQuery, columns: Columns) -> _Keys:
    """Return the keys of rows: of their outcome, and of all dimensions of the query."""
    ids = np.flatnonzero(np.bincount(columns[KIND]))
    parts = query.kinds.parts(ids)
    failed, interrupted = (np.isin(parts["state"], list(states)) for states in query.outcomes)
    parts["outcome"] = failed + 2 * interrupted.astype(np.int64)

    # Several kinds may be alike in the dimensions of the query, so they share a code.
    names = ["outcome", *(name for name in query.by if name in OF_KIND)]
    combinations = np.stack([parts[name] for name in names], 1)
    values, codes = np.unique(combinations, axis=0, return_inverse=True)
    code_of_kind = np.zeros(int(ids.max(initial=0)) + 1, np.int64)
    code_of_kind[ids] = codes.reshape(-1)
    keys = _Keys(len(columns[KIND]))
    keys.add(names, values, code_of_kind[columns[KIND]])

    for name in query.by:
        if name in OF_KIND:
            continue
        values_up_to = int(columns[name].max(initial=0)) + 1
        # For few combinations this is faster than finding the values that occur.
        if keys.possible * values_up_to <= len(keys.of_rows) // 4:
            values = np.arange(values_up_to)
            codes = columns[name]
        else:
            values, codes = encode_column(columns[name])
        keys.add([name], values[:, np.newaxis], codes)
    return keys


def _counted(query: CubeQuery, columns: Columns, sums: Collection[str]) -> Columns:
    """Return the sums by dimension and `outcome`: 0 completed, 1 failed, 2 interrupted."""
    keys = _keys_of(query, columns)
    cell_of_row = keys.of_rows
    cells = None
    size = keys.possible
    if size > MOST_CELLS:
        cells, cell_of_row = np.unique(cell_of_row, return_inverse=True)
        size = len(cells)

    jobs = np.bincount(cell_of_row, columns.get("jobs"), minlength=size)
    filled = np.flatnonzero(jobs)
    counted = {"jobs": np.rint(jobs[filled]).astype(np.int64)}
    for name in sums:
        if name != "jobs":
            totals = np.bincount(cell_of_row, columns[name], minlength=size)[filled]
            counted[name] = np.rint(totals).astype(np.int64)
    if query.rates is not None:
        expected = _expected(query.rates, query.kinds, columns)
        counted["expected"] = np.bincount(cell_of_row, expected, minlength=size)[filled]
    return counted | keys.decode(filled if cells is None else cells[filled])


def _expected(
    rates: Mapping[tuple[int, ...], float], kinds: Kinds, columns: Columns
) -> npt.NDArray[np.float64]:
    """Return the expected number of failed jobs of each row, from the rates of similar jobs."""
    ids = np.flatnonzero(np.bincount(columns[KIND]))
    parts = kinds.parts(ids)
    table = np.zeros(int(ids.max(initial=0)) + 1)
    alike = zip(*(parts[name].tolist() for name in ALIKE), strict=True)
    table[ids] = [rates.get(key, 0.0) for key in alike]
    expected = table[columns[KIND]]
    return expected * columns["jobs"] if "jobs" in columns else expected
