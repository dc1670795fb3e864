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

#: Sums over jobs. Queue time is that of `started` jobs; both memory sums are of jobs that have both figures.
SUMS = ("jobs", "core_seconds", "cpu_ms", "wall_seconds", "started", "queued_seconds", "memory_mb", "requested_mb")
#: Figures of one job, -1 where unknown; its sums follow from them.
FIGURES = ("core_seconds", "cpu_ms", "wall_seconds", "queued_seconds", "memory_mb", "requested_mb")


@dataclass(frozen=True, slots=True)
class Level:
    """A kind of blocks: of an hour or a day, with some dimensions, summed over the others."""

    name: str
    daily: bool
    dimensions: frozenset[str]

    def has(self, names: Collection[str]) -> bool:
        return self.dimensions.issuperset(names)


_PLACE = {"site", "host", "cpu_model"}
#: One row per job.
JOB = Level("job", False, frozenset(STORED))
#: Sums of an hour and of a day. Hosts times all work would be almost as long as the jobs themselves.
WORK = Level("work", False, frozenset(STORED) - _PLACE)
HOST = Level(
    "host", True, frozenset({"host", "site", "cpu_model", "cluster", "experiment", "stage", "release", "state"})
)
DAY = Level("day", True, frozenset(STORED) - {"host"})
#: Fewest rows first.
HOURLY, DAILY = (WORK, JOB), (DAY, HOST)


def grouped(columns: Columns, names: Collection[str], sums: Collection[str]) -> Columns:
    """Sum columns over the rows that agree in `names`; rows come sorted by the names."""
    keys: Column = np.zeros(len(columns[next(iter(sums))]), np.int64)
    for name in names:
        codes = np.unique(columns[name], return_inverse=True)[1]
        keys = np.unique(keys * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)[1]
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
    found = {name: columns[name][order[starts]] for name in names}
    if not len(order):
        return found | {name: columns[name] for name in sums}
    return found | {name: np.add.reduceat(columns[name][order], starts) for name in sums}


def sums_of_jobs(figures: Columns, rows: int) -> Columns:
    """Return the sums of each job by itself from such of its figures as are given."""
    sums: Columns = {"jobs": np.ones(rows, np.int64)}
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
