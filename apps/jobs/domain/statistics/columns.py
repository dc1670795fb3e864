"""The columns of statistics blocks: dimensions, sums, and which level has which."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

#: A column of a block, or several of them one after the other.
Column = npt.NDArray[np.int64]
Columns = dict[str, Column]

#: Dimensions that blocks store, as IDs of `StatisticsValue`, and their labels.
STORED = {
    "experiment": "experiment",
    "request": "request",
    "stage": "stage",
    "release": "release",
    "user": "user",
    "account": "account",
    "cluster": "cluster",
    "site": "site",
    "host": "host",
    "cpu_model": "CPU model",
    "state": "state",
    "exit_code": "exit code",
    "signal": "signal",
    "reason": "held reason",
    "verdict": "verdict",
    "cause": "cause",
}
#: Dimensions that follow from the hour in which a job finished, in the portal's time zone.
OF_HOUR = {"hour": "hour of day", "weekday": "weekday", "window": "time window"}
DIMENSIONS = STORED | OF_HOUR

#: These four are stored as one column, `KIND`: nearly every question asks for most of them, and few combinations occur.
KIND, OF_KIND = "kind", ("experiment", "stage", "release", "state")
#: The UTC hour, in daily blocks of rows that are those of its hours.
UTC_HOUR = "utc_hour"

#: Sums over jobs. Queue time is that of `started` jobs; both memory sums are of jobs that have both figures.
SUMS = ("jobs", "core_seconds", "cpu_ms", "wall_seconds", "started", "queued_seconds", "memory_mb", "requested_mb")
#: Figures of one job, -1 where unknown; its sums follow from them.
FIGURES = ("core_seconds", "cpu_ms", "wall_seconds", "queued_seconds", "memory_mb", "requested_mb")


@dataclass(frozen=True, slots=True)
class Level:
    """A kind of blocks: of an hour or a day, with some dimensions, summed over the others.

    Blocks of a day `by_hour` keep its hours apart, with `UTC_HOUR`. Those `of_jobs` have a row per job, with figures in
    place of sums.
    """

    name: str
    dimensions: frozenset[str]
    by_hour: bool = False
    of_jobs: bool = False

    def has(self, names: Collection[str]) -> bool:
        return self.dimensions.issuperset(names)

    @property
    def columns(self) -> frozenset[str]:
        """The stored columns of its dimensions."""
        return (self.dimensions - {*OF_KIND}) | {KIND} | ({UTC_HOUR} if self.by_hour else set())


_WHO = frozenset({"request", "user", "account"})
_OF_SITE = frozenset({"site", "cluster", *OF_KIND})
_WORK = frozenset(STORED) - {"site", "host", "cpu_model"}
#: Blocks of an hour. Hosts times all work would be almost as long as the jobs themselves.
JOB, WORK = Level("job", frozenset(STORED), of_jobs=True), Level("work", _WORK)
#: Blocks of a day.
DAY = Level("day", frozenset(STORED) - {"host"})
WORK_DAY, SITE_DAY = Level("work_day", _WORK), Level("site_day", _OF_SITE | {"request"})
HOST_DAY = Level("host_day", frozenset(STORED) - _WHO)
#: Blocks of a day by hour.
WORK_HOURS, SITE_HOURS = Level("work_hours", _WORK, by_hour=True), Level("site_hours", _OF_SITE, by_hour=True)
JOB_HOURS = Level("job_hours", frozenset(STORED), by_hour=True, of_jobs=True)
#: Fewest rows first.
HOURLY, DAILY = (WORK, JOB), (WORK_DAY, SITE_DAY, DAY, HOST_DAY)
HOURS_OF_DAY = (WORK_HOURS, SITE_HOURS, JOB_HOURS)

#: Groups that are counted in an array; more of them are sorted.
MOST_CELLS = 4_000_000
_EXACT = 1 << 53


def dense(column: Column) -> tuple[Column, Column]:
    """Return the values that occur in a column of small numbers, in order, and the number of each row's value."""
    values = np.flatnonzero(np.bincount(column))
    table = np.zeros(int(values.max(initial=0)) + 1, np.int64)
    table[values] = np.arange(len(values))
    return values, table[column]


def codes_of(columns: Columns, names: Collection[str], rows: int) -> tuple[Column, int]:
    """Return a number for each row, the same for rows that agree in `names`, in their order; and how many there are."""
    keys, size = np.zeros(rows, np.int64), 1
    for name in names:
        values, codes = dense(columns[name])
        keys, size = keys * max(len(values), 1) + codes, size * max(len(values), 1)
        if size > MOST_CELLS:
            found, keys = np.unique(keys, return_inverse=True)
            size = len(found)
    found, keys = dense(keys)
    return keys, len(found)


def grouped(columns: Columns, names: Collection[str], sums: Collection[str]) -> Columns:
    """Sum columns over the rows that agree in `names`; rows come sorted by the names."""
    rows = len(columns[next(iter(sums))])
    codes, count = codes_of(columns, names, rows)
    first = np.zeros(count, np.int64)
    first[codes[::-1]] = np.arange(rows - 1, -1, -1)
    found = {name: columns[name][first] for name in names}
    return found | {name: _summed(codes, columns[name], count) for name in sums}


def _summed(codes: Column, column: Column, count: int) -> Column:
    """Return the exact sum of a column by code."""
    if column.dtype.kind == "f":
        return np.bincount(codes, column, minlength=count)
    if len(column) * int(np.abs(column).max(initial=0)) < _EXACT:
        return np.rint(np.bincount(codes, column, minlength=count)).astype(np.int64)
    order = np.argsort(codes, kind="stable")
    return np.add.reduceat(column[order], np.searchsorted(codes[order], np.arange(count)))


def sums_of_jobs(figures: Columns) -> Columns:
    """Return the sums of each job by itself from such of its figures as are given, without their number."""
    sums: Columns = {}
    for name in ("core_seconds", "cpu_ms", "wall_seconds"):
        if name in figures:
            sums[name] = figures[name]
    if "queued_seconds" in figures:
        sums["started"] = (figures["queued_seconds"] >= 0).astype(np.int64)
        sums["queued_seconds"] = np.maximum(figures["queued_seconds"], 0)
    if "memory_mb" in figures:
        known = (figures["memory_mb"] >= 0) & (figures["requested_mb"] > 0)
        sums |= {name: np.where(known, figures[name], 0) for name in ("memory_mb", "requested_mb")}
    return sums
