"""Rules for the jobs of a stage: their number, size, memory and wall time."""

from collections.abc import Iterator
from math import ceil

from apps.core.domain.quantities import round_duration, round_size
from apps.production.domain.checks.base import (
    Facts,
    Fix,
    Problem,
    Severity,
    past_rule,
    rule,
    stage_rule,
)
from apps.production.domain.checks.rules.declared import number
from apps.production.domain.content.model import RequestContent, StageContent, field_text
from apps.production.domain.estimates.figures import ENOUGH, StageEstimate
from apps.production.domain.types.fields import CORE

#: With fewer events, a job spends most of its time starting and stopping.
FEW_EVENTS = 10
#: File sizes that suit disk and tape, in bytes.
SMALL_FILE = 10 * 10**6
LARGE_FILE = 20 * 10**9
SMALL_MERGED = 200 * 10**6
LARGE_MERGED = 20 * 10**9
HOUR = 3600
#: Job lengths in seconds. Shorter jobs are mostly overhead; each failure of a longer one is
#: expensive.
SHORT_JOB = 600
LONG_JOB = 2 * 86_400
#: A wall time limit this many times as long as needed keeps slots from other jobs.
GENEROUS = 4
#: Times of past jobs beyond this many times the limit cannot be a matter of how they are scaled.
FAR_BEYOND = 4
#: How far around the best number of jobs to search for one that divides the events.
FARTHEST_EVEN = 5_000


@stage_rule(Severity.WARNING)
def events_per_job(stage: StageContent, facts: Facts) -> Iterator[Problem]:
    """A job has at least ten events."""
    if stage.events and stage.jobs and stage.jobs <= stage.events < FEW_EVENTS * stage.jobs:
        per_job = stage.events / stage.jobs
        yield Problem(
            "jobs", f"Only {per_job:.3g} events per job. Check the numbers of events and jobs."
        )


@rule(Severity.WARNING)
def even_jobs(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Events divide evenly among the jobs of a generation stage."""
    for position, stage in enumerate(content.stages):
        if stage.kind != "generation" or not stage.events or not stage.jobs:
            continue
        per_job, remainder = divmod(stage.events, stage.jobs)
        if per_job and remainder:
            events = per_job * stage.jobs
            yield Problem(
                f"stages.{position}.events",
                (
                    f"{stage.jobs:,} jobs of {per_job:,} events make {events:,}, {remainder:,} "
                    "fewer than requested."
                ),
                Fix(f"Request {events:,}", _events_along(content, position, events)),
            )


def _events_along(content: RequestContent, position: int, events: int) -> dict[str, int]:
    """Return new events for a stage and for those after it that read all events it wrote."""
    old = content.stages[position].events
    values = {}
    for follower in range(position, len(content.stages)):
        if content.stages[follower].events != old:
            break
        values[f"stages.{follower}.events"] = events
    return values


@stage_rule(Severity.WARNING)
def file_size(stage: StageContent, facts: Facts) -> Iterator[Problem]:
    """The output file of a job is between 10 MB and 20 GB."""
    size = number(stage, "output_event_bytes")
    if not size or not stage.events or not stage.jobs:
        return
    file_bytes = round(size * stage.events / stage.jobs)
    if not SMALL_FILE <= file_bytes <= LARGE_FILE:
        if file_bytes < SMALL_FILE:
            what = "small: use fewer jobs or add a merge"
        else:
            what = "large: use more jobs"
        about = round_size(round(file_bytes, -max(0, len(str(file_bytes)) - 3)))
        yield Problem("jobs", f"Each job writes about {about}, which is {what}.")


@stage_rule(Severity.WARNING)
def merge_size(stage: StageContent, facts: Facts) -> Iterator[Problem]:
    """Merged files are between 200 MB and 20 GB."""
    name = "target_bytes" if number(stage, "target_bytes") else "group_bytes"
    size = number(stage, name)
    if size and not SMALL_MERGED <= size <= LARGE_MERGED:
        best = SMALL_MERGED if size < SMALL_MERGED else LARGE_MERGED
        here = f"arguments.{name}"
        yield Problem(
            here,
            (
                f"Files between {round_size(SMALL_MERGED)} and {round_size(LARGE_MERGED)} suit "
                "disk and tape best."
            ),
            Fix(f"Use {round_size(best)}", {here: best}),
        )


@stage_rule(Severity.ERROR)
def merge_jobs(stage: StageContent, facts: Facts) -> Iterator[Problem]:
    """A merge has fewer jobs than input files."""
    files = number(stage, "files")
    if number(stage, "target_bytes") and files and stage.jobs and stage.jobs >= files:
        yield Problem(
            "jobs", f"{stage.jobs:,} jobs for {int(files):,} files merge nothing. Use fewer jobs."
        )


@stage_rule(Severity.ERROR)
def files_for_every_job(stage: StageContent, facts: Facts) -> Iterator[Problem]:
    """A stage that reads files has at least one file per job."""
    files = number(stage, "files")
    if not number(stage, "target_bytes") and files and stage.jobs and stage.jobs > files:
        fix = Fix(f"Use {int(files):,} jobs", {"jobs": int(files)})
        yield Problem(
            "jobs", f"More jobs than files ({int(files):,}). Reduce the number of jobs.", fix
        )


@stage_rule(Severity.ERROR)
def fits_cluster(stage: StageContent, facts: Facts) -> Iterator[Problem]:
    """At least one cluster accepts jobs with this memory and wall time."""
    memory = stage.memory_bytes or 0
    wall = stage.wall_seconds or 0
    roomy = []
    most = 0
    longest = 0
    for offer in facts.offers:
        most = max(most, offer.memory_bytes or 0)
        if memory <= (offer.memory_bytes or memory):
            roomy.append(offer)
            longest = max(longest, offer.wall_seconds or 0)
    if facts.offers and not roomy:
        fix = Fix(f"Use {round_size(most)}", {"memory_bytes": most})
        yield Problem(
            "memory_bytes", f"No cluster offers more than {round_size(most)} per job.", fix
        )
    elif roomy and all(wall > (offer.wall_seconds or wall) for offer in roomy):
        size = field_text("memory_bytes", memory) or "this memory"
        fix = Fix(f"Use {round_duration(longest)}", {"wall_seconds": longest})
        yield Problem(
            "wall_seconds", f"Jobs with {size} may run at most {round_duration(longest)}.", fix
        )


@stage_rule(Severity.ERROR)
def retries_get_no_less(stage: StageContent, facts: Facts) -> Iterator[Problem]:
    """The bounds of retries are at least the memory and the wall time of the first attempt."""
    for name, bound_name in (
        ("memory_bytes", "retry_memory_bytes"),
        ("wall_seconds", "retry_wall_seconds"),
    ):
        asked = getattr(stage, name)
        bound = getattr(stage, bound_name)
        if asked and bound and bound < asked:
            text = field_text(name, asked)
            yield Problem(
                bound_name,
                f"Less than the {text} of the first attempt.",
                Fix(f"Use {text}", {bound_name: asked}),
            )


def _with_retries(stage: StageContent, name: str, value: int) -> dict[str, int]:
    """Return a new memory or wall time and, if it would be below that, the bound of retries."""
    values = {name: value}
    bound = getattr(stage, f"retry_{name}")
    if bound and bound < value:
        values[f"retry_{name}"] = value
    return values


def _times_basis(stage: StageContent, past: StageEstimate) -> str:
    """Return which past jobs the times of a stage come from, and to what they are scaled."""
    if not past.scaled or not stage.events or not stage.jobs:
        return past.basis
    events = f"{stage.events / stage.jobs:,.0f}"
    return f"{past.jobs_text} ({past.alike}, scaled to {events} events per job)"


def _unfinished(stage: StageContent, past: StageEstimate) -> Problem:
    """Return the problem that nearly no job of a stage will finish within its wall time."""
    limit = field_text("wall_seconds", stage.wall_seconds or 0)
    needed = round_duration(past.wall_seconds.mid if past.wall_seconds else 0)
    return Problem(
        "wall_seconds",
        (
            f"Nearly no job of {past.name} will finish within {limit}: "
            f"by {_times_basis(stage, past)}, a job needs about {needed}."
        ),
        _fix_of_wall_time(stage, past),
    )


def _fix_of_wall_time(stage: StageContent, past: StageEstimate) -> Fix | None:
    """Return a wall time for nearly all past jobs; None if no job may take that long."""
    enough = ceil((past.wall_most or 0) * 1.2 / HOUR) * HOUR
    if enough > CORE["wall_seconds"].most:
        return None
    return Fix(f"Use {round_duration(enough)}", _with_retries(stage, "wall_seconds", enough))


def _is_unfinished(stage: StageContent, past: StageEstimate) -> bool:
    """Whether nearly all past jobs took longer than the wall time."""
    return bool(past.wall_used) and 0 < (stage.wall_seconds or 0) < past.wall_used[0]


def _is_certainly_unfinished(stage: StageContent, past: StageEstimate) -> bool:
    """Whether many equal past jobs took so much longer than the limit that scaling cannot err."""
    if not _is_unfinished(stage, past) or past.same_jobs < ENOUGH:
        return False
    return past.wall_used[0] > FAR_BEYOND * (stage.wall_seconds or 0)


@past_rule(Severity.ERROR)
def wall_time_possible(stage: StageContent, past: StageEstimate) -> Iterator[Problem]:
    """The wall time is not far too short for nearly all jobs, by past jobs of the same
    configuration.
    """
    if _is_certainly_unfinished(stage, past):
        yield _unfinished(stage, past)


@past_rule(Severity.WARNING)
def wall_time_plausible(stage: StageContent, past: StageEstimate) -> Iterator[Problem]:
    """At least every tenth past job took no longer than the wall time."""
    if _is_unfinished(stage, past) and not _is_certainly_unfinished(stage, past):
        yield _unfinished(stage, past)


@past_rule(Severity.WARNING)
def wall_time_sufficient(stage: StageContent, past: StageEstimate) -> Iterator[Problem]:
    """The wall time is at least the 90th percentile of past jobs."""
    if _is_unfinished(stage, past):
        return
    if not (stage.wall_seconds and past.wall_most and stage.wall_seconds < past.wall_most):
        return
    share = "10 %"
    longest = round_duration(round(past.wall_most / 60) * 60)
    if past.reaches_limit:
        share = "More than half"
        longest = field_text("wall_seconds", stage.wall_seconds)
    yield Problem(
        "wall_seconds",
        f"{share} of {_times_basis(stage, past)} took more than {longest}.",
        _fix_of_wall_time(stage, past),
    )


@past_rule(Severity.WARNING)
def wall_time_not_excessive(stage: StageContent, past: StageEstimate) -> Iterator[Problem]:
    """The wall time is at most four times the 90th percentile of past jobs."""
    if (
        stage.wall_seconds
        and past.wall_most
        and stage.wall_seconds > GENEROUS * max(past.wall_most, HOUR)
    ):
        enough = ceil(past.wall_most * 1.5 / HOUR) * HOUR
        longest = round_duration(ceil(past.wall_most / 60) * 60)
        fix = Fix(f"Use {round_duration(enough)}", {"wall_seconds": enough})
        yield Problem(
            "wall_seconds",
            (
                f"90 % of {_times_basis(stage, past)} took at most {longest}. "
                "Shorter jobs start sooner."
            ),
            fix,
        )


@past_rule(Severity.WARNING)
def memory_sufficient(stage: StageContent, past: StageEstimate) -> Iterator[Problem]:
    """The memory is at least the 90th percentile of past jobs."""
    if stage.memory_bytes and past.memory_most and stage.memory_bytes < past.memory_most:
        share = "10 %"
        used = round_size(max(1, round(past.memory_most / 10**8)) * 10**8)
        if past.reaches_memory:
            share = "More than half"
            used = field_text("memory_bytes", stage.memory_bytes)
        enough = ceil(past.memory_most * 1.1 / 10**8) * 10**8
        values = _with_retries(stage, "memory_bytes", enough)
        fix = Fix(f"Use {round_size(enough)}", values)
        yield Problem("memory_bytes", f"{share} of {past.basis} used more than {used}.", fix)


@past_rule(Severity.WARNING)
def job_length(stage: StageContent, past: StageEstimate) -> Iterator[Problem]:
    """A job is expected to take between ten minutes and two days."""
    wall = past.wall_seconds.mid if past.wall_seconds else 0
    if not stage.jobs or not wall or SHORT_JOB <= wall <= LONG_JOB:
        return
    jobs = max(1, round(stage.jobs * wall / (4 * HOUR)))
    jobs = _even_number(stage.events or 0, near=jobs)
    fits = past.scaled and jobs <= min(stage.events or 0, CORE["jobs"].most)
    if wall < SHORT_JOB:
        what = "Use fewer, longer jobs"
    else:
        what = "Use more, shorter jobs"
    duration = round_duration(max(1, round(wall / 60)) * 60)
    fix = Fix(f"Use {jobs:,} jobs", {"jobs": jobs}) if fits else None
    basis = _times_basis(stage, past)
    yield Problem("jobs", f"A job takes about {duration}, by {basis}. {what}.", fix)


def _even_number(events: int, *, near: int) -> int:
    """Return the number of jobs that divides the events, nearest to `near`; else `near`."""
    for distance in range(min(near // 4, FARTHEST_EVEN) + 1):
        for jobs in (near - distance, near + distance):
            if events % jobs == 0:
                return jobs
    return near
