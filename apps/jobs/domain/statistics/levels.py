"""The columns of statistics blocks: dimensions, sums, and which level has which."""

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
#: Dimensions that follow from the hour in which a job finished, in the portal's time zone.
OF_HOUR = {"hour": "hour of day", "weekday": "weekday", "window": "time window"}
DIMENSIONS = STORED | OF_HOUR

#: These four are stored as one column, `KIND`: nearly every question asks for most of them, and few
#: combinations occur.
KIND = "kind"
OF_KIND = ("experiment", "stage", "release", "state")
#: The UTC hour, in daily blocks of rows that are those of its hours.
UTC_HOUR = "utc_hour"

#: Sums over jobs. Queue time is that of `started` jobs; both memory sums are of jobs that have both
#: figures.
SUMS = (
    "jobs",
    "core_seconds",
    "cpu_ms",
    "wall_seconds",
    "started",
    "queued_seconds",
    "memory_mb",
    "requested_mb",
)
#: Figures of one job, -1 where unknown; its sums follow from them.
FIGURES = ("core_seconds", "cpu_ms", "wall_seconds", "queued_seconds", "memory_mb", "requested_mb")


@dataclass(frozen=True, slots=True)
class Level:
    """A kind of blocks: of an hour or a day, with some dimensions, summed over the others.

    Blocks of a day `by_hour` keep its hours apart, with `UTC_HOUR`. Those `of_jobs` have a row per
    job, with figures in place of sums.
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
JOB = Level("job", frozenset(STORED), of_jobs=True)
WORK = Level("work", _WORK)
#: Blocks of a day.
DAY = Level("day", frozenset(STORED) - {"host"})
WORK_DAY = Level("work_day", _WORK)
SITE_DAY = Level("site_day", _OF_SITE | {"request"})
HOST_DAY = Level("host_day", frozenset(STORED) - _WHO)
#: Blocks of a day by hour.
WORK_HOURS = Level("work_hours", _WORK, by_hour=True)
SITE_HOURS = Level("site_hours", _OF_SITE, by_hour=True)
JOB_HOURS = Level("job_hours", frozenset(STORED), by_hour=True, of_jobs=True)
#: Fewest rows first.
HOURLY = (WORK, JOB)
DAILY = (WORK_DAY, SITE_DAY, DAY, HOST_DAY)
HOURS_OF_DAY = (WORK_HOURS, SITE_HOURS, JOB_HOURS)
