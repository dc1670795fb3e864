"""Rules for figures far above the usual of past jobs and earlier requests: often an extra zero."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from apps.core.domain.quantities import count_noun, round_size
from apps.production.domain.checks.base import Facts, Fix, Problem, Severity, rule, stages
from apps.production.domain.checks.rules.declared import number, runs
from apps.production.domain.checks.rules.runs_and_seeds import NEW_RUNS
from apps.production.domain.content.model import RequestContent, StageContent
from apps.production.domain.content.stage_names import named_or_synonym, synonyms_of

HOUR = 3600
GB = 10**9
TB = 10**12


@dataclass(frozen=True)
class Scale:
    """The limit for a figure: a multiple of the earlier figure.

    An earlier figure below `small` counts as `small`. Without an earlier figure, the limit is
    `unknown`.
    """

    times: int
    small: float
    unknown: float

    def limit(self, earlier: float) -> float:
        """Return the largest usual figure. `earlier` is 0 if there is nothing to compare with."""
        if not earlier:
            return self.unknown
        return self.times * max(earlier, self.small)


MEMORY = Scale(times=4, small=2 * GB, unknown=64 * GB)
JOBS = Scale(times=10, small=100, unknown=100_000)
HOURS = Scale(times=10, small=100, unknown=1_000_000)
DISK = Scale(times=10, small=100 * GB, unknown=100 * TB)
#: Jobs per run number of a block.
JOBS_PER_RUN = Scale(times=10, small=1, unknown=1_000)


@rule(Severity.WARNING)
def memory_fits_node(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """No job needs more memory than the largest known node has."""
    offered = max((offer.memory_bytes or 0 for offer in facts.offers), default=0)
    largest = max(facts.largest_node_bytes, offered)
    for path, stage in stages(content):
        if largest and (stage.memory_bytes or 0) > largest:
            yield Problem(
                f"{path}.memory_bytes",
                f"The largest known node has {round_size(largest)} of memory.",
            )


@rule(Severity.WARNING)
def memory_usual(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The memory is at most four times what past jobs used or, without past jobs,
    what earlier stages requested.
    """
    requested = max((stage.memory_bytes for stage in facts.earlier_stages), default=0)
    for position, (path, stage) in enumerate(stages(content)):
        past = None
        if position < len(facts.estimate.stages):
            past = facts.estimate.stages[position]
        used = (past.memory_most if past else None) or 0
        earlier = used or facts.memory_used_bytes or requested
        if (stage.memory_bytes or 0) <= MEMORY.limit(earlier):
            continue
        if used and past:
            enough = max(ceil(used * 1.5 / GB), 1) * GB
            fix = Fix(f"Use {round_size(enough)}", {f"{path}.memory_bytes": enough})
            message = f"90 % of {past.basis} used at most {_size(used)}. Smaller jobs start sooner."
            yield Problem(f"{path}.memory_bytes", message, fix)
        else:
            message = f"No job of the experiment has used or requested more than {_size(earlier)}."
            yield Problem(
                f"{path}.memory_bytes", message if earlier else _NOTHING_EARLIER.format("memory")
            )


@rule(Severity.WARNING)
def jobs_usual(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """A stage has at most ten times the jobs of an earlier stage of its name,
    or else of any earlier stage.
    """
    for path, stage in stages(content):
        named = []
        synonyms = synonyms_of(stage.name)
        for earlier in facts.earlier_stages:
            if earlier.name in synonyms:
                named.append(earlier)
        largest = max(named or facts.earlier_stages, key=lambda earlier: earlier.jobs, default=None)
        if (stage.jobs or 0) <= JOBS.limit(largest.jobs if largest else 0):
            continue
        if largest is None or not largest.jobs:
            yield Problem(f"{path}.jobs", _NOTHING_EARLIER.format("number of jobs"))
        else:
            what = f"stage {largest.name} of {largest.request}"
            yield Problem(
                f"{path}.jobs",
                f"The largest earlier one, {what}, has {largest.jobs:,} jobs. Check the number.",
            )


@rule(Severity.WARNING)
def hours_usual(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """All jobs at their time limit take at most ten times the hours of the largest earlier
    request.
    """
    earlier: dict[str, float] = defaultdict(float)
    for earlier_stage in facts.earlier_stages:
        earlier[earlier_stage.request] += earlier_stage.jobs * earlier_stage.wall_seconds / HOUR
    key = max(earlier, key=lambda key: earlier[key], default="")
    hours = [_hours(stage) for stage in content.stages]
    if sum(hours) <= HOURS.limit(earlier.get(key, 0)):
        return
    message = f"{sum(hours):,.0f} h if every job runs to its limit."
    if earlier.get(key):
        message += (
            f" The largest earlier request, {key}, has {earlier[key]:,.0f} h. "
            "Check jobs and wall time."
        )
    else:
        message += " " + _NOTHING_EARLIER.format("time")
    yield Problem(f"stages.{hours.index(max(hours))}.jobs", message)


@rule(Severity.WARNING)
def disk_usual(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The output of a stage is at most ten times as large as the largest earlier output of a
    stage of its name.
    """
    for (path, stage), past in zip(stages(content), facts.estimate.stages, strict=False):
        _, largest_output = named_or_synonym(facts.largest_outputs, stage.name)
        earlier = largest_output or 0
        if not past.disk_bytes or past.disk_bytes.mid <= DISK.limit(earlier):
            continue
        message = f"The output would take {_size(past.disk_bytes.mid)}."
        if earlier:
            message += (
                f" The largest earlier one has {_size(earlier)}. Check events and size per event."
            )
        else:
            message += " " + _NOTHING_EARLIER.format("size")
        if number(stage, "output_event_bytes"):
            field = "arguments.output_event_bytes"
        else:
            field = "events"
        yield Problem(f"{path}.{field}", message)


@rule(Severity.WARNING)
def run_block_usual(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The run block has as many jobs per run number as earlier requests, within a factor of ten."""
    numbers = sum(last - first + 1 for first, last in runs(content, NEW_RUNS))
    jobs = (content.stages[0].jobs if content.stages else None) or 0
    if not numbers or not jobs:
        return
    earlier = []
    for block in facts.earlier_blocks:
        if block.jobs and block.runs:
            earlier.append(block.jobs / block.runs)
    least = min(earlier, default=1.0)
    most = max(earlier, default=0.0)
    if least / JOBS_PER_RUN.times <= jobs / numbers <= JOBS_PER_RUN.limit(most):
        return
    message = (
        f"{count_noun(numbers, 'run number')} for {jobs:,} jobs: "
        f"{_per_run(jobs / numbers)} per run."
    )
    if earlier:
        if least == most:
            span = _per_run(most)
        else:
            span = f"{least:,.3g} to {_per_run(most)}"
        message += f" Earlier requests have {span}."
    yield Problem(f"arguments.{NEW_RUNS}", f"{message} Check the block.")


_NOTHING_EARLIER = (
    "This {} is unusual, and the experiment has no earlier request to compare it with. Check it."
)


def _hours(stage: StageContent) -> float:
    return (stage.jobs or 0) * (stage.wall_seconds or 0) / HOUR


def _size(size: float) -> str:
    """Format a size with two significant digits."""
    whole = max(1, round(size))
    return round_size(round(whole, 2 - len(str(whole))))


def _per_run(jobs: float) -> str:
    return f"{jobs:,.3g} jobs" if jobs < 100 else f"{jobs:,.0f} jobs"
