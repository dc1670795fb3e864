"""Rules for the size of jobs and files, for merging and for keep-up."""

from collections.abc import Iterator
from datetime import date

from apps.production.domain.checks.base import Facts, Fix, Problem, Severity, rule, stage_rule, stages
from apps.production.domain.checks.rules.declared import number, text
from apps.production.domain.content.model import RequestContent, StageContent, field_text
from apps.production.domain.types.quantities import format_duration, format_size

#: With fewer events a job spends most of its time starting and stopping.
FEW_EVENTS = 10
#: File sizes that suit storage and tape, in bytes.
SMALL_FILE, LARGE_FILE = 10 * 10**6, 20 * 10**9
SMALL_MERGED, LARGE_MERGED = 200 * 10**6, 20 * 10**9
MAX_SEED = 900_000_000
DAY = 86_400


@stage_rule(Severity.WARNING)
def events_per_job(stage: StageContent, facts: Facts) -> Iterator[Problem]:
    """A job has at least ten events."""
    if stage.events and stage.jobs and stage.jobs <= stage.events < FEW_EVENTS * stage.jobs:
        each = stage.events / stage.jobs
        yield Problem("jobs", f"Only {each:.3g} events per job. Check the numbers of events and jobs.")


@stage_rule(Severity.WARNING)
def even_jobs(stage: StageContent, facts: Facts) -> Iterator[Problem]:
    """Events divide evenly among the jobs of a generation stage."""
    if stage.kind == "generation" and stage.events and stage.jobs and stage.jobs <= stage.events:
        each, rest = divmod(stage.events, stage.jobs)
        if rest:
            events = each * stage.jobs
            yield Problem(
                "events",
                f"{stage.jobs:,} jobs of {each:,} events make {events:,}, {rest:,} fewer than requested.",
                Fix(f"Request {events:,}", {"events": events}),
            )


@stage_rule(Severity.WARNING)
def file_size(stage: StageContent, facts: Facts) -> Iterator[Problem]:
    """The output file of a job is between 10 MB and 20 GB."""
    size = number(stage, "output_event_bytes")
    if not size or not stage.events or not stage.jobs:
        return
    each = round(size * stage.events / stage.jobs)
    if not SMALL_FILE <= each <= LARGE_FILE:
        what = "small: use fewer jobs or add a merge" if each < SMALL_FILE else "large: use more jobs"
        yield Problem("jobs", f"Each job writes about {_about(each)}, which is {what}.")


def _about(size: int) -> str:
    digits = max(0, len(str(size)) - 3)
    return format_size(round(size, -digits))


@stage_rule(Severity.WARNING)
def merge_size(stage: StageContent, facts: Facts) -> Iterator[Problem]:
    """Merged files are between 200 MB and 20 GB."""
    size = number(stage, "target_bytes")
    if size and not SMALL_MERGED <= size <= LARGE_MERGED:
        best = SMALL_MERGED if size < SMALL_MERGED else LARGE_MERGED
        here = "arguments.target_bytes"
        yield Problem(
            here,
            f"Files between {format_size(SMALL_MERGED)} and {format_size(LARGE_MERGED)} suit disk and tape best.",
            Fix(f"Use {format_size(best)}", {here: best}),
        )


@stage_rule(Severity.ERROR)
def merge_jobs(stage: StageContent, facts: Facts) -> Iterator[Problem]:
    """A merge has fewer jobs than input files."""
    files = number(stage, "files")
    if number(stage, "target_bytes") and files and stage.jobs and stage.jobs >= files:
        yield Problem("jobs", f"{stage.jobs:,} jobs for {int(files):,} files merge nothing. Use fewer jobs.")


@stage_rule(Severity.ERROR)
def files_for_every_job(stage: StageContent, facts: Facts) -> Iterator[Problem]:
    """A stage that reads files has at least one file per job."""
    files = number(stage, "files")
    if not number(stage, "target_bytes") and files and stage.jobs and stage.jobs > files:
        yield Problem(
            "jobs",
            f"More jobs than files ({int(files):,}). Reduce the number of jobs.",
            Fix(f"Use {int(files):,} jobs", {"jobs": int(files)}),
        )


@rule(Severity.ERROR)
def seed_range(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The seed of the last job is within the range that generators accept."""
    first = number(content, "first_seed")
    jobs = (content.stages[0].jobs if content.stages else None) or 0
    if first and first + jobs - 1 > MAX_SEED:
        path = "arguments.first_seed"
        fix = Fix(f"Start with {MAX_SEED - jobs + 1:,}", {path: MAX_SEED - jobs + 1}) if jobs < MAX_SEED else None
        yield Problem(path, f"The seed of job {jobs:,} would exceed {MAX_SEED:,}. Start with a lower seed.", fix)


def _stop(content: RequestContent) -> date | None:
    try:
        return date.fromisoformat(text(content, "stop_on"))
    except ValueError:
        return None


@rule(Severity.ERROR)
def stop_in_future(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The stop date of keep-up processing is in the future."""
    stop = _stop(content)
    if stop and stop <= facts.today:
        yield Problem(
            "arguments.stop_on", f"The stop date is not in the future. Choose a date after {facts.today:%-d %b %Y}."
        )


@rule(Severity.WARNING)
def stop_by_deadline(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Keep-up processing stops by the deadline."""
    stop = _stop(content)
    if stop and content.deadline and stop > content.deadline:
        yield Problem(
            "deadline",
            f"Keep-up processing runs until {stop:%-d %b %Y}, after the deadline.",
            Fix(f"Use {stop:%-d %b %Y}", {"deadline": stop}),
        )


@rule(Severity.ERROR)
def split_complete(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """A split “per N files” has a number of files per job."""
    if text(content, "split") == "per N files" and not number(content, "files_per_job"):
        path = "arguments.files_per_job"
        yield Problem(
            path, "Enter the number of files per job.", Fix("One file per job", {"arguments.split": "per file"})
        )


@rule(Severity.WARNING)
def job_cap_sufficient(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The maximum number of concurrent jobs suffices for the jobs expected before the stop date."""
    cap, stop = number(content, "most_in_flight"), _stop(content)
    if not cap or not stop or stop <= facts.today:
        return
    seconds = (stop - facts.today).days * DAY
    needed = sum((stage.jobs or 0) * (stage.wall_seconds or 0) for stage in content.stages) / seconds
    if needed > cap:
        path, enough = "arguments.most_in_flight", int(needed) + 1
        yield Problem(
            path,
            f"If jobs run to their wall time limit, {enough:,} must run at once to finish by the stop date.",
            Fix(f"Allow {enough:,}", {path: enough}) if enough <= 100_000 else None,
        )


@rule(Severity.WARNING)
def cadence_within_latency(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The cadence is not longer than the target latency."""
    cadence, latency = number(content, "cadence"), number(content, "latency")
    if cadence and latency and cadence > latency:
        yield Problem(
            "arguments.cadence",
            f"Files wait up to {format_duration(int(cadence))} before they are processed, "
            f"but the target latency is {format_duration(int(latency))}.",
            Fix(f"Every {format_duration(int(latency))}", {"arguments.cadence": int(latency)})
            if latency >= 300
            else None,
        )


@rule(Severity.ERROR)
def fits_cluster(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """At least one cluster accepts jobs with this memory and wall time."""
    offers = facts.offers
    for path, stage in stages(content):
        memory, wall = stage.memory_bytes or 0, stage.wall_seconds or 0
        fits = [o for o in offers if memory <= (o.memory_bytes or memory) and wall <= (o.wall_seconds or wall)]
        roomy = [o for o in offers if memory <= (o.memory_bytes or memory)]
        if not offers or fits:
            continue
        if not roomy:
            most = max(o.memory_bytes or 0 for o in offers)
            yield Problem(
                f"{path}.memory_bytes",
                f"No cluster offers more than {format_size(most)} per job.",
                Fix(f"Use {format_size(most)}", {f"{path}.memory_bytes": most}),
            )
        else:
            longest = max(o.wall_seconds or 0 for o in roomy)
            yield Problem(
                f"{path}.wall_seconds",
                f"Jobs with {field_text('memory_bytes', memory) or 'this memory'} may run at most "
                f"{format_duration(longest)}.",
                Fix(f"Use {format_duration(longest)}", {f"{path}.wall_seconds": longest}),
            )
