"""The columns of statistics blocks: dimensions, sums, and the levels that have them."""

from collections.abc import Collection
from dataclasses import dataclass

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
#: Dimensions computed from the hour in which a job finished, in the portal's time zone.
OF_HOUR = {"hour": "hour of day", "weekday": "weekday", "window": "time window"}
DIMENSIONS = STORED | OF_HOUR
#: Dimensions that say how a job ended. A failure rate by one of them says nothing: only failed jobs
#: have a verdict, a cause or a signal.
OF_THE_END = frozenset({"state", "exit_code", "signal", "verdict", "cause"})

#: These four are stored as one column, `KIND`: most queries need most of them, and few combinations
#: occur.
KIND = "kind"
OF_KIND = ("experiment", "stage", "release", "state")
#: The UTC hour of a row, in daily blocks that keep hours apart.
UTC_HOUR = "utc_hour"

#: Sums over jobs. Queue time is summed over `started` jobs, both memory sums over jobs with both
#: figures. `gpu_used_seconds` of `gpu_measured_seconds` were used, those of jobs with measured use.
SUMS = (
    "jobs",
    "core_seconds",
    "cpu_ms",
    "wall_seconds",
    "started",
    "queued_seconds",
    "memory_mb",
    "requested_mb",
    "gpu_seconds",
    "gpu_used_seconds",
    "gpu_measured_seconds",
    "energy_joules",
)
#: Figures of one job, -1 where unknown. Its sums are computed from them.
FIGURES = (
    "core_seconds",
    "cpu_ms",
    "wall_seconds",
    "queued_seconds",
    "memory_mb",
    "requested_mb",
    "gpu_seconds",
    "gpu_used_seconds",
    "energy_joules",
)
#: Blocks of older releases lack these. No job had them: they are 0.
ADDED = frozenset(("gpu_seconds", "gpu_used_seconds", "gpu_measured_seconds", "energy_joules"))


@dataclass(frozen=True, slots=True)
class BlockLevel:
    """A kind of block: for an hour or a day, with some dimensions, summed over the others.

    Daily blocks with `by_hour` keep their hours apart in `UTC_HOUR`. Blocks with `of_jobs` have one
    row per job, with figures instead of sums.
    """

    name: str
    dimensions: frozenset[str]
    by_hour: bool = False
    of_jobs: bool = False

    def has(self, names: Collection[str]) -> bool:
        return self.dimensions.issuperset(names)

    @property
    def columns(self) -> frozenset[str]:
        """The stored columns of this level's dimensions."""
        return (self.dimensions - {*OF_KIND}) | {KIND} | ({UTC_HOUR} if self.by_hour else set())


_WHO = frozenset({"request", "user", "account"})
_OF_SITE = frozenset({"site", "cluster", *OF_KIND})
_WORK = frozenset(STORED) - {"site", "host", "cpu_model"}
#: Levels of one hour. A level with both hosts and all of `_WORK` would be almost as long as the
#: jobs.
JOB = BlockLevel("job", frozenset(STORED), of_jobs=True)
WORK = BlockLevel("work", _WORK)
#: Levels of one day.
DAY = BlockLevel("day", frozenset(STORED) - {"host"})
WORK_DAY = BlockLevel("work_day", _WORK)
SITE_DAY = BlockLevel("site_day", _OF_SITE | {"request"})
HOST_DAY = BlockLevel("host_day", frozenset(STORED) - _WHO)
#: Levels of one day, by hour.
WORK_HOURS = BlockLevel("work_hours", _WORK, by_hour=True)
SITE_HOURS = BlockLevel("site_hours", _OF_SITE, by_hour=True)
JOB_HOURS = BlockLevel("job_hours", frozenset(STORED), by_hour=True, of_jobs=True)
#: Levels in order of size, fewest rows first.
HOURLY = (WORK, JOB)
DAILY = (WORK_DAY, SITE_DAY, DAY, HOST_DAY)
HOURS_OF_DAY = (WORK_HOURS, SITE_HOURS, JOB_HOURS)
#: Levels of one UTC month, by the level of one day with the same dimensions.
MONTHLY = {
    level: BlockLevel(level.name.replace("day", "month"), level.dimensions) for level in DAILY
}
