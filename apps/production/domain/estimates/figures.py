"""Estimates of cost and duration of a request from past jobs of the same stages.

This module does not access the database.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import accumulate

from apps.core.domain.quantities import count_noun
from apps.production.domain.content.model import RequestContent, StageContent
from apps.production.domain.content.stage_names import named_or_synonym
from apps.production.domain.forecast import Days, Forecast, end_after
from apps.production.domain.outputs.datasets import Dataset

#: The stored quantiles of past jobs, and the fraction of jobs that each represents.
QUANTILES = (0.10, 0.25, 0.50, 0.75, 0.90)
_WEIGHTS = (0.175, 0.20, 0.25, 0.20, 0.175)
#: The place of the median among them.
MEDIAN = QUANTILES.index(0.50)
#: Below this number of completed jobs, less similar jobs count too.
ENOUGH = 20
#: Without past jobs, a stage whose jobs run in more rounds than this, each until the time limit,
#: has no days: so few jobs at once show that little was done so far, not how many can run.
MOST_ROUNDS = 100
#: A pace is applied to at most this many times the jobs that it was measured with, if these are
#: fewer than `ENOUGH`.
MOST_EXTRAPOLATED = 20
DAY = 86_400


@dataclass(frozen=True, kw_only=True)
class PastStage:
    """The jobs of one stage of an earlier request.

    Quantiles are those of `QUANTILES`, over completed jobs.
    """

    request_key: str
    release: str = ""
    configuration: str = ""
    output_dataset: str = ""
    events_per_job: float | None = None
    completed: int
    #: Over all attempts, including failed ones.
    core_seconds: float
    completed_wall_seconds: float
    wall_seconds: tuple[float, ...]
    memory_bytes: tuple[float, ...] = ()
    #: Jobs completed per day, over the days on which any completed.
    per_day: tuple[float, ...]


@dataclass(frozen=True)
class Range:
    """An uncertain figure: half of the known values lie between `low` and `high`."""

    low: float
    mid: float
    high: float


@dataclass(frozen=True, kw_only=True)
class StageEstimate:
    """The figures of one stage, and the past jobs they are based on.

    `requests` are the keys of the requests of these jobs; `alike` says how similar the jobs are.
    """

    name: str
    past_jobs: int = 0
    #: Past jobs with the same release and configuration, even if the figures use more jobs.
    same_jobs: int = 0
    requests: tuple[str, ...] = ()
    alike: str = ""
    #: Whether times are scaled by the number of events per job.
    scaled: bool = False
    #: Whether most past jobs took longer than its time limit, at which jobs of this stage end.
    reaches_limit: bool = False
    #: Whether nearly all of them did, so that nearly no job of this stage will finish. Its core
    #: seconds are those until the limit, and it has no `days`.
    exceeds_limit: bool = False
    #: Whether most past jobs used more memory than it has.
    reaches_memory: bool = False
    #: Per job.
    wall_seconds: Range | None = None
    memory_bytes: Range | None = None
    #: The quantiles of `QUANTILES` over all these past jobs; empty if unknown.
    wall_used: tuple[float, ...] = ()
    memory_used: tuple[float, ...] = ()
    #: The 90th percentiles of past jobs.
    wall_most: float | None = None
    memory_most: float | None = None
    #: How many jobs run at once according to `days`. Without past jobs, `days` assumes that each
    #: job runs until its time limit.
    at_once: float | None = None
    #: Whether more would run at once if the request allowed it.
    is_limited: bool = False
    #: Of all jobs.
    core_seconds: Range | None = None
    #: Of all jobs if each runs on one core until its time limit. Set only without past jobs.
    limit_core_seconds: Range | None = None
    days: Range | None = None
    disk_bytes: Range | None = None
    disk_basis: str = ""

    @property
    def jobs_text(self) -> str:
        return count_noun(self.past_jobs, "past job")

    @property
    def basis(self) -> str:
        return f"{self.jobs_text} ({self.alike})"

    @property
    def days_basis(self) -> str:
        """The basis of `days` as text."""
        if self.past_jobs:
            return f"{self.jobs_text}: {self.alike}"
        jobs = max(1, round(self.at_once or 0))
        at_once = f"{jobs:,} jobs at once" if jobs > 1 else "1 job at a time"
        return f"its time limit with about {at_once}, as it has no past jobs"


@dataclass(frozen=True)
class Size:
    """The core time of a request, as lists show it and the queue counts it.

    With `by_limit` it is at most this: stages without past jobs count with their time limits.
    """

    core_seconds: float
    by_limit: bool
    basis: str


@dataclass(frozen=True)
class Estimate:
    """The figures of a request. A sum is None unless every stage has a value.

    In the core-hours, a stage without past jobs counts with its time limit, if other stages have
    past jobs.
    """

    stages: tuple[StageEstimate, ...] = ()
    today: date | None = None
    #: Earliest, likeliest and latest day of the expected start. If None, no wait is counted.
    begins: Days | None = None
    #: The end according to the forecast. If None, the end is computed.
    ends: Days | None = None
    #: The priority class of that forecast, and its assumption, such as `if approved now`.
    priority_class: str = ""
    assumption: str = ""

    @property
    def past_jobs(self) -> int:
        return sum(stage.past_jobs for stage in self.stages)

    @property
    def without(self) -> list[str]:
        return [stage.name for stage in self.stages if not stage.past_jobs]

    @property
    def by_limit(self) -> list[str]:
        """The stages whose core-hours are computed from their time limit."""
        if self.core_seconds is None:
            return []
        return self.without

    @property
    def unfinished(self) -> list[str]:
        """The stages of which nearly no job will finish within its time limit."""
        return [stage.name for stage in self.stages if stage.exceeds_limit]

    @property
    def needed_change(self) -> str:
        """A sentence on the first stage most of whose jobs exceed a limit; empty without one."""
        for stage in self.stages:
            limits = []
            if stage.reaches_limit:
                limits.append("wall time")
            if stage.reaches_memory:
                limits.append("memory")
            if limits:
                return f"Most jobs of {stage.name} will exceed their {' and '.join(limits)}."
        return ""

    @property
    def why_no_end(self) -> str:
        """Why the request has no end whenever it starts; empty if it has one or is unknown."""
        if not self.unfinished:
            return ""
        return f"nearly no job of {', '.join(self.unfinished)} would end within its time limit"

    @property
    def core_seconds(self) -> Range | None:
        return self._known_core_seconds if self.past_jobs else None

    @property
    def _known_core_seconds(self) -> Range | None:
        """The core time by past jobs, or by the time limits of stages without any."""
        return _sum(stage.core_seconds or stage.limit_core_seconds for stage in self.stages)

    @property
    def size(self) -> Size | None:
        """The core time by past jobs, or else by the time limits; None if a stage has neither."""
        total = self._known_core_seconds
        if total is None:
            return None
        if not self.past_jobs:
            return Size(total.mid, True, "its requested jobs and their time limits")
        basis = f"{self.past_jobs:,} past jobs of its stages"
        if self.by_limit:
            basis += " and the time limits of the others"
        return Size(total.mid, bool(self.by_limit), basis)

    @property
    def disk_bytes(self) -> Range | None:
        return _sum(stage.disk_bytes for stage in self.stages)

    @property
    def days(self) -> Range | None:
        return _sum(stage.days for stage in self.stages)

    @property
    def finish(self) -> Days | None:
        """The earliest, likeliest and latest day of the end.

        It counts from the expected start, or from today if the start is unknown.
        """
        if self.ends is not None:
            return self.ends
        days = self.days
        if days is None or self.today is None:
            return None
        start = self.begins or Days.exactly(self.today)
        return end_after(start, days.low, days.mid, days.high)

    def with_forecast(self, forecast: Forecast | None) -> "Estimate":
        """Return the estimate with start and end of the forecast, so that both show equal dates."""
        if forecast is None:
            return self
        return replace(
            self,
            begins=forecast.start,
            ends=forecast.end,
            priority_class=forecast.priority_class,
            assumption=forecast.assumption,
        )


NO_ESTIMATE = Estimate()


def estimate(
    content: RequestContent,
    *,
    past: Mapping[str, Sequence[PastStage]],
    datasets: Mapping[str, Dataset],
    today: date,
    at_once: Range | None = None,
    own: str = "",
) -> Estimate:
    """Estimate each stage from past stages.

    `past` has the past stages by lower-case name, and `datasets` their outputs. `at_once` is how
    many jobs of the experiment ran at once, over all stages. `own` is the key of the request if it
    has started: enough jobs of its own count alone.
    """
    stages = estimate_stages(content.stages, past=past, datasets=datasets, at_once=at_once, own=own)
    most = content.arguments.get("most_in_flight")
    if isinstance(most, int) and most > 0:
        stages = tuple(_limited(stage, most) for stage in stages)
    return Estimate(stages, today)


def _limited(figures: StageEstimate, most_at_once: int) -> StageEstimate:
    """Return the figures of a stage of which at most `most_at_once` jobs run at once."""
    days = figures.days
    if days is None or not figures.at_once or figures.at_once <= most_at_once:
        return figures
    least = days.mid * figures.at_once / most_at_once
    return replace(
        figures,
        days=Range(max(days.low, least), least, max(days.high, least)),
        at_once=most_at_once,
        is_limited=True,
    )


def estimate_stages(
    stages: Iterable[StageContent],
    *,
    past: Mapping[str, Sequence[PastStage]],
    datasets: Mapping[str, Dataset],
    at_once: Range | None = None,
    own: str = "",
) -> tuple[StageEstimate, ...]:
    estimates = []
    for position, stage in enumerate(stages, start=1):
        past_name, past_stages = named_or_synonym(past, stage.name)
        name = stage.name or f"stage {position}"
        figures = _estimate_stage(stage, name, past_stages or (), datasets, at_once, own)
        if figures.past_jobs and past_name != stage.name.casefold():
            alike = figures.alike.removeprefix("same stage name, ")
            figures = replace(figures, alike=f"stage {past_name}, {alike}")
        estimates.append(figures)
    return tuple(estimates)


def jobs_at_once(past: Sequence[PastStage]) -> Range | None:
    """Return how many jobs ran at once in past stages: jobs per day times the days per job.

    None without a past stage whose jobs took time, because jobs of 0 s do not show how many can
    run.
    """
    timed = [stage for stage in past if stage.completed and stage.completed_wall_seconds]

    def concurrency(stage: PastStage) -> list[float]:
        days_of_job = stage.completed_wall_seconds / stage.completed / DAY
        return [jobs_per_day * days_of_job for jobs_per_day in stage.per_day]

    return Distribution.over(timed, concurrency).range


def _estimate_stage(
    stage: StageContent,
    name: str,
    past: Sequence[PastStage],
    datasets: Mapping[str, Dataset],
    at_once: Range | None,
    own: str,
) -> StageEstimate:
    """Return the figures of a stage, from its most similar past stages if it has any."""
    completed = [past_stage for past_stage in past if past_stage.completed]
    similar: Sequence[PastStage] = [
        past_stage for past_stage in completed if own and past_stage.request_key == own
    ]
    alike = "of this request"
    if not similar or not is_enough(_count_jobs(similar), stage.jobs or 0):
        similar, alike = _most_similar(stage, completed)
    if similar:
        figures = _from_past_jobs(stage, name, similar, at_once)
        figures = replace(
            figures,
            alike=alike,
            same_jobs=_count_jobs(past_stage for past_stage in past if _is_same(stage, past_stage)),
        )
    else:
        figures = _from_time_limit(stage, name, at_once)

    disk_bytes, disk_basis = _disk(stage, similar, datasets)
    return replace(figures, disk_bytes=disk_bytes, disk_basis=disk_basis)


def _from_time_limit(stage: StageContent, name: str, at_once: Range | None) -> StageEstimate:
    """Return the figures of a stage without past jobs, as if each job ran until its limit."""
    limit_core_seconds = None
    if stage.jobs and stage.wall_seconds:
        limit = float(stage.jobs * stage.wall_seconds)
        limit_core_seconds = Range(limit, limit, limit)

    days = _days_by_limit(stage, at_once)
    return StageEstimate(
        name=name,
        at_once=at_once.mid if at_once and days else None,
        limit_core_seconds=limit_core_seconds,
        days=days,
    )


def _from_past_jobs(
    stage: StageContent, name: str, similar: Sequence[PastStage], at_once: Range | None
) -> StageEstimate:
    """Return the figures of a stage from jobs of similar past stages."""
    walls = Distribution.over(
        similar,
        lambda past_stage: [wall * _scale(stage, past_stage) for wall in past_stage.wall_seconds],
    )
    memories = Distribution.over(similar, lambda past_stage: past_stage.memory_bytes)

    shortest = walls.quantile(QUANTILES[0]) or 0.0
    exceeds_limit = bool(stage.wall_seconds) and shortest > (stage.wall_seconds or 0)
    days = None if exceeds_limit else _days(stage, similar, walls, at_once)
    jobs_at_once = None
    if stage.jobs and days and days.mid:
        jobs_at_once = stage.jobs * _median_within_limit(stage, walls) / DAY / days.mid

    has_events = all(past_stage.events_per_job for past_stage in similar)
    return StageEstimate(
        name=name,
        past_jobs=_count_jobs(similar),
        requests=tuple(dict.fromkeys(past_stage.request_key for past_stage in similar)),
        scaled=bool(stage.events and stage.jobs) and has_events,
        reaches_limit=_most_exceed(walls, stage.wall_seconds),
        exceeds_limit=exceeds_limit,
        reaches_memory=_most_exceed(memories, stage.memory_bytes),
        wall_seconds=walls.range,
        memory_bytes=memories.range,
        wall_used=walls.quantiles(QUANTILES),
        memory_used=memories.quantiles(QUANTILES),
        wall_most=walls.quantile(0.9),
        memory_most=memories.quantile(0.9),
        core_seconds=_core_seconds(stage, similar),
        at_once=jobs_at_once,
        days=days,
    )


def is_enough(completed: int, jobs: int) -> bool:
    """Return whether the pace of the completed jobs shows how long `jobs` take."""
    return completed >= ENOUGH or jobs <= completed * MOST_EXTRAPOLATED


def _count_jobs(past: Iterable[PastStage]) -> int:
    return sum(past_stage.completed for past_stage in past)


def _most_similar(
    stage: StageContent, past: Sequence[PastStage]
) -> tuple[Sequence[PastStage], str]:
    """Return the most similar past stages with enough jobs, and a description of their similarity.

    If no choice has enough jobs, return the one with the most.
    """
    release = [past_stage for past_stage in past if past_stage.release == stage.release]
    configuration = [
        past_stage for past_stage in past if past_stage.configuration == stage.configuration
    ]
    choices: list[tuple[Sequence[PastStage], str]] = [
        (
            [past_stage for past_stage in past if _is_same(stage, past_stage)],
            "same release and configuration",
        ),
        (configuration, "same configuration, any release"),
        (release, "same release, any configuration"),
        (past, "same stage name, any release and configuration"),
    ]
    best = choices[0]
    most_completed = -1
    for choice in choices:
        completed = _count_jobs(choice[0])
        if completed >= ENOUGH:
            return choice
        if completed > most_completed:
            best = choice
            most_completed = completed
    return best


def _is_same(stage: StageContent, past_stage: PastStage) -> bool:
    return (past_stage.release, past_stage.configuration) == (stage.release, stage.configuration)


def _scale(stage: StageContent, past_stage: PastStage) -> float:
    """Return the ratio of events per job now to events per job then, 1 if unknown."""
    if not (stage.events and stage.jobs and past_stage.events_per_job):
        return 1.0
    return stage.events / stage.jobs / past_stage.events_per_job


def _scale_within_limit(stage: StageContent, past_stage: PastStage) -> float:
    """Return `_scale`, but at most the factor by which the median past job reaches the time limit.

    A job ends at the limit of its stage, however long past jobs took.
    """
    scale = _scale(stage, past_stage)
    median = past_stage.wall_seconds[MEDIAN] if past_stage.wall_seconds else 0.0
    if not stage.wall_seconds or not median:
        return scale
    return min(scale, stage.wall_seconds / median)


def _core_seconds(stage: StageContent, similar: Sequence[PastStage]) -> Range | None:
    """Return the mean over past jobs, with failed attempts, and the quartiles of single jobs.

    No job counts beyond the time limit of the stage.
    """
    if not stage.jobs:
        return None
    jobs = stage.jobs
    completed = _count_jobs(similar)
    core_seconds = sum(
        past_stage.core_seconds * _scale_within_limit(stage, past_stage) for past_stage in similar
    )
    mean = core_seconds / completed * jobs
    limit = stage.wall_seconds or math.inf

    def by_job(past_stage: PastStage) -> list[float]:
        if past_stage.completed_wall_seconds >= 1:
            cores = past_stage.core_seconds / past_stage.completed_wall_seconds
        else:
            cores = 0.0
        walls = [min(wall * _scale(stage, past_stage), limit) for wall in past_stage.wall_seconds]
        return [wall * cores * jobs for wall in walls]

    spread = Distribution.over(similar, by_job).range
    if spread is None:
        return None
    return Range(min(spread.low, mean), mean, max(spread.high, mean))


def _days(
    stage: StageContent,
    similar: Sequence[PastStage],
    walls: "Distribution",
    at_once: Range | None,
) -> Range | None:
    """Return how many days all jobs take at the pace of past jobs, at least the time of one job.

    A past stage of few jobs is slow because it has few jobs, not because few can run. Therefore the
    pace is at least that of `at_once` jobs running at the same time.
    """
    pace = Distribution.over(
        similar,
        lambda past_stage: [
            pace / _scale_within_limit(stage, past_stage) for pace in past_stage.per_day
        ],
    ).range
    least = _median_within_limit(stage, walls) / DAY
    if pace is not None and at_once is not None and least:
        shared = at_once.low / least, at_once.mid / least, at_once.high / least
        pace = Range(*map(max, (pace.low, pace.mid, pace.high), shared))
    if not stage.jobs or pace is None or not pace.low:
        return None
    if not is_enough(_count_jobs(similar), stage.jobs):
        return None
    return Range(*(max(stage.jobs / by, least) for by in (pace.high, pace.mid, pace.low)))


def _most_exceed(used: "Distribution", limit: int | None) -> bool:
    """Return whether more than half of the jobs used more than the limit, if there is one."""
    return bool(limit) and (used.quantile(0.5) or 0) > (limit or 0)


def _median_within_limit(stage: StageContent, walls: "Distribution") -> float:
    """Return the seconds of the median job, which ends at the time limit of the stage."""
    return min(walls.quantile(0.5) or 0.0, stage.wall_seconds or math.inf)


def _days_by_limit(stage: StageContent, at_once: Range | None) -> Range | None:
    """Return the days for all jobs if each runs until its time limit, at least the time of one job.

    None if so few run at once that there are more than `MOST_ROUNDS` rounds. Past jobs may have
    been so short that fewer than one ran at a time, but one at a time can run.
    """
    if not (stage.jobs and stage.wall_seconds and at_once):
        return None
    if stage.jobs > MOST_ROUNDS * max(1.0, at_once.mid):
        return None
    days_of_job = stage.wall_seconds / DAY
    concurrencies = [max(1.0, jobs) for jobs in (at_once.high, at_once.mid, at_once.low)]
    return Range(*(max(stage.jobs * days_of_job / jobs, days_of_job) for jobs in concurrencies))


def _disk(
    stage: StageContent, similar: Sequence[PastStage], datasets: Mapping[str, Dataset]
) -> tuple[Range | None, str]:
    """Return the output size and its basis.

    The size uses the declared size per event, or else the size per event in earlier outputs.
    """
    stated = stage.arguments.get("output_event_bytes")
    if not stage.events:
        return None, ""
    if isinstance(stated, int) and stated > 0:
        size = float(stated * stage.events)
        return Range(size, size, size), "the size per event in the request"

    sizes = []
    for name in {past_stage.output_dataset for past_stage in similar}:
        dataset = datasets.get(name)
        if dataset and dataset.size_bytes and dataset.events:
            sizes.append(dataset.size_bytes / dataset.events)
    if not sizes:
        return None, ""

    mean = sum(sizes) / len(sizes)
    size_range = Range(min(sizes) * stage.events, mean * stage.events, max(sizes) * stage.events)
    return size_range, f"{count_noun(len(sizes), 'earlier output')} in the catalogue"


class Distribution:
    """Values of past jobs, smallest first, each with the number of jobs up to it."""

    def __init__(self, points: Iterable[tuple[float, float]]) -> None:
        """`points` are values with their weights, in any order."""
        ordered = sorted(points)
        self._values = [value for value, _ in ordered]
        self._reached = list(accumulate(weight for _, weight in ordered))

    @classmethod
    def over(
        cls, past: Iterable[PastStage], values: Callable[[PastStage], Sequence[float]]
    ) -> "Distribution":
        """Return the distribution of values of past stages.

        Each quantile of a stage represents a fraction of its jobs.
        """
        points = []
        for past_stage in past:
            for value, weight in zip(values(past_stage) or (), _WEIGHTS, strict=False):
                points.append((value, weight * past_stage.completed))
        return cls(points)

    def quantile(self, part: float) -> float | None:
        """Return the smallest value at which the cumulative weight reaches a fraction, or None."""
        return next(iter(self.quantiles((part,))), None)

    def quantiles(self, parts: Sequence[float]) -> tuple[float, ...]:
        """Return the quantile for each fraction. Empty without values."""
        if not self._values:
            return ()
        total = self._reached[-1]
        places = (bisect_left(self._reached, part * total * (1 - 1e-9)) for part in parts)
        return tuple(self._values[place] for place in places)

    @property
    def range(self) -> Range | None:
        """The median between the quartiles, or None."""
        quartiles = self.quantiles((0.25, 0.5, 0.75))
        return Range(*quartiles) if quartiles else None


def _sum(parts: Iterable[Range | None]) -> Range | None:
    total: Range | None = None
    for part in parts:
        if part is None:
            return None
        if total is None:
            total = part
        else:
            total = Range(total.low + part.low, total.mid + part.mid, total.high + part.high)
    return total
