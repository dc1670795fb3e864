"""Rules that compare a stage with past jobs and requests."""

from collections.abc import Iterator
from difflib import get_close_matches
from math import ceil

from apps.production.domain.checks.base import Facts, Fix, Problem, Severity, rule, stage_rule, stages
from apps.production.domain.content.model import RequestContent, StageContent
from apps.production.domain.estimates.figures import StageEstimate
from apps.production.domain.types.fields import CORE
from apps.production.domain.types.quantities import format_duration, format_size

HOUR = 3600
#: Shorter jobs are mostly overhead; of longer ones, each failure is expensive. In seconds.
SHORT_JOB, LONG_JOB = 600, 2 * 86_400
#: A wall time limit of this many times what jobs take keeps slots from others.
GENEROUS = 4


def _past(content: RequestContent, facts: Facts) -> Iterator[tuple[str, StageContent, StageEstimate]]:
    for (path, stage), estimate in zip(stages(content), facts.estimate.stages, strict=False):
        if estimate.past_jobs:
            yield path, stage, estimate


def _basis(estimate: StageEstimate) -> str:
    return f"{estimate.past_jobs:,} past jobs ({estimate.alike})"


@rule(Severity.WARNING)
def deadline_reachable(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """At the pace of past jobs, the request finishes by its deadline."""
    finish = facts.estimate.finish
    if not finish or not content.deadline or content.deadline >= finish[2]:
        return
    early, likely, late = (f"{day:%-d %b %Y}" for day in finish)
    sure = content.deadline < finish[0]
    begins = facts.estimate.begins
    start = f"starting about {begins[1]:%-d %b %Y}" if begins else "starting today"
    yield Problem(
        "deadline",
        f"At the pace of {facts.estimate.past_jobs:,} past jobs it would finish between {early} and {late}, "
        f"most likely on {likely}, {start}. It {'will' if sure else 'may'} miss the deadline.",
        Fix(f"Use {finish[2]:%-d %b %Y}", {"deadline": finish[2]}),
    )


@rule(Severity.WARNING)
def wall_time_sufficient(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The wall time is at least the 90th percentile of past jobs."""
    for path, stage, past in _past(content, facts):
        if stage.wall_seconds and past.wall_most and stage.wall_seconds < past.wall_most:
            enough = min(ceil(past.wall_most * 1.2 / HOUR) * HOUR, CORE["wall_seconds"].most)
            yield Problem(
                f"{path}.wall_seconds",
                f"10% of {_basis(past)} took more than {format_duration(round(past.wall_most / 60) * 60)}.",
                Fix(f"Use {format_duration(enough)}", {f"{path}.wall_seconds": enough}),
            )


@rule(Severity.WARNING)
def wall_time_not_excessive(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The wall time is at most four times the 90th percentile of past jobs."""
    for path, stage, past in _past(content, facts):
        enough = ceil((past.wall_most or 0) * 1.5 / HOUR) * HOUR
        if stage.wall_seconds and past.wall_most and stage.wall_seconds > GENEROUS * max(past.wall_most, HOUR):
            yield Problem(
                f"{path}.wall_seconds",
                f"90% of {_basis(past)} took at most {format_duration(ceil(past.wall_most / 60) * 60)}. "
                "Shorter jobs start sooner.",
                Fix(f"Use {format_duration(enough)}", {f"{path}.wall_seconds": enough}),
            )


@rule(Severity.WARNING)
def memory_sufficient(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The memory is at least the 90th percentile of past jobs."""
    for path, stage, past in _past(content, facts):
        if stage.memory_bytes and past.memory_most and stage.memory_bytes < past.memory_most:
            used = format_size(max(1, round(past.memory_most / 10**8)) * 10**8)
            enough = ceil(past.memory_most * 1.1 / 10**8) * 10**8
            yield Problem(
                f"{path}.memory_bytes",
                f"10% of {_basis(past)} used more than {used}.",
                Fix(f"Use {format_size(enough)}", {f"{path}.memory_bytes": enough}),
            )


@rule(Severity.WARNING)
def job_length(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """A job is expected to take between ten minutes and two days."""
    for path, stage, past in _past(content, facts):
        wall = past.wall_seconds.mid if past.wall_seconds else 0
        if not stage.jobs or not wall or SHORT_JOB <= wall <= LONG_JOB:
            continue
        jobs = max(1, round(stage.jobs * wall / (4 * HOUR)))
        fits = past.scaled and jobs <= min(stage.events or 0, CORE["jobs"].most)
        fix = Fix(f"Use {jobs:,} jobs", {f"{path}.jobs": jobs}) if fits else None
        what = "Use fewer, longer jobs" if wall < SHORT_JOB else "Use more, shorter jobs"
        words = format_duration(max(1, round(wall / 60)) * 60)
        yield Problem(f"{path}.jobs", f"A job takes about {words}, by {_basis(past)}. {what}.", fix)


@stage_rule(Severity.WARNING)
def known_release(stage: StageContent, facts: Facts) -> Iterator[Problem]:
    """The experiment has used the release before."""
    if stage.release and facts.releases and stage.release not in facts.releases:
        near = get_close_matches(stage.release, sorted(facts.releases), n=1, cutoff=0.8)
        yield Problem(
            "release",
            "No request of this experiment has used this release." + (f" Did you mean {near[0]}?" if near else ""),
            Fix(f"Use {near[0]}", {"release": near[0]}) if near else None,
        )


@stage_rule(Severity.WARNING)
def usual_services(stage: StageContent, facts: Facts) -> Iterator[Problem]:
    """The stage lists the services that most earlier stages of this name needed."""
    before = facts.stages_before.get(stage.name.casefold())
    for slug, times in sorted(before.services.items()) if before else ():
        if before and before.requests >= 2 and times * 2 > before.requests and slug not in stage.services:
            yield Problem(
                "services",
                f"{times} of {before.requests} earlier stages named {stage.name} needed {slug}.",
                Fix(f"Add {slug}", {"services": (*stage.services, slug)}),
            )


@rule(Severity.WARNING)
def configuration_tested(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """If the stage has past jobs, some completed with this release and configuration."""
    for path, stage, past in _past(content, facts):
        if past.same_jobs == 0 and stage.release and stage.configuration:
            yield Problem(
                f"{path}.configuration",
                f"{past.name} has past jobs, but none completed with {stage.release} and {stage.configuration}. "
                "Run a test.",
            )


@rule(Severity.WARNING)
def test_up_to_date(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Jobs of the stage completed after its release and configuration last changed."""
    for position, (path, stage) in enumerate(stages(content)):
        tested, changed = facts.completed_at.get(stage.name.casefold()), facts.changed_at.get(position)
        if tested and changed and tested < changed:
            yield Problem(
                f"{path}.configuration",
                f"This changed on {changed:%-d %b %Y}, but the last job of this stage completed on "
                f"{tested:%-d %b %Y}. Run a new test.",
            )
