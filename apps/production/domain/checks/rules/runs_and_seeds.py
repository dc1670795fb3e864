"""Rules for run numbers and seeds, which no two requests may share."""

from collections.abc import Iterator

from apps.production.domain.checks.base import Facts, Fix, Problem, Severity, rule
from apps.production.domain.checks.rules.declared import number, ranges, runs
from apps.production.domain.content.model import RequestContent
from apps.production.domain.types.arguments import Runs, intersect_runs

#: The argument with the run numbers of new events. No two requests may share them.
NEW_RUNS = "run_block"
MAX_SEED = 900_000_000
#: Above the largest run number that can be entered.
MAX_RUN = 10**12


@rule(Severity.ERROR)
def run_numbers_unique(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """No other request of the experiment uses these run numbers for new events."""
    path = f"arguments.{NEW_RUNS}"
    fix = None
    block = _free_block(runs(content, NEW_RUNS), facts)
    if block:
        fix = Fix(f"Use {block}", {path: block})
    for other, common in _same_runs(content, facts, NEW_RUNS):
        yield Problem(path, f"{other} already uses {common}. Choose other runs.", fix)


def _free_block(mine: Runs, facts: Facts) -> str:
    """Return a free block of the same size as a single range, after the runs of all other requests.

    Empty if there is no such block.
    """
    if len(mine) != 1:
        return ""
    first = 1
    for other in facts.others:
        for _, last_used in ranges(other.runs.get(NEW_RUNS, "")):
            first = max(first, last_used + 1)
    last = first + mine[0][1] - mine[0][0]
    return f"{first}-{last}" if last < MAX_RUN else ""


@rule(Severity.WARNING)
def runs_not_processed(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """No other request of the experiment processes these runs with the same release and
    configuration.
    """
    first = content.stages[0] if content.stages else None
    alike = set()
    for other in facts.others:
        if first and (other.release, other.configuration) == (first.release, first.configuration):
            alike.add(other.key)
    for argument in content.workflow.arguments:
        if argument.type == "runs" and argument.name != NEW_RUNS:
            for key, common in _same_runs(content, facts, argument.name):
                if key in alike:
                    yield Problem(
                        f"arguments.{argument.name}",
                        f"{key} processes {common} with the same release and configuration.",
                    )


def _same_runs(content: RequestContent, facts: Facts, name: str) -> Iterator[tuple[str, str]]:
    mine = runs(content, name)
    if not mine:
        return
    for other in facts.others:
        common = intersect_runs(mine, ranges(other.runs.get(name, "")))
        if common:
            first, last = common[0]
            text = f"run {first}" if first == last else f"runs {first}-{last}"
            if len(common) > 1:
                text += f" and {len(common) - 1} more"
            yield other.key, text


@rule(Severity.ERROR)
def seed_range(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The seed of the last job is within the range that generators accept."""
    first = number(content, "first_seed")
    jobs = (content.stages[0].jobs if content.stages else None) or 0
    if first and first + jobs - 1 > MAX_SEED:
        path = "arguments.first_seed"
        fix = None
        if jobs < MAX_SEED:
            fix = Fix(f"Start with {MAX_SEED - jobs + 1:,}", {path: MAX_SEED - jobs + 1})
        yield Problem(
            path,
            f"The seed of job {jobs:,} would exceed {MAX_SEED:,}. Start with a lower seed.",
            fix,
        )


@rule(Severity.ERROR)
def seeds_unique(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """No other request with the same generator configuration uses these seeds."""
    first = number(content, "first_seed")
    stage = content.stages[0] if content.stages else None
    if not first or stage is None or not stage.configuration:
        return
    last = first + (stage.jobs or 1) - 1
    clash = []
    free = 0
    for other in facts.others:
        if not other.first_seed or other.configuration != stage.configuration:
            continue
        next_seed = other.first_seed + max(other.jobs, 1)
        free = max(free, next_seed)
        if other.first_seed <= last and first < next_seed:
            clash.append(other)
    for other in clash:
        yield Problem(
            "arguments.first_seed",
            f"{other.key} uses {other.jobs:,} seeds from {other.first_seed:,} with "
            f"{stage.configuration}. "
            "The same events would be generated twice.",
            Fix(f"Start with {free:,}", {"arguments.first_seed": free}),
        )
