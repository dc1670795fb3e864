"""Rules for how much one job and one file hold, and for merging and keep-up."""

from collections.abc import Iterator
from datetime import date

from apps.production.domain.checks.base import Mend, Problem, Severity, rule, stages
from apps.production.domain.checks.declared import number, text
from apps.production.domain.checks.facts import Facts
from apps.production.domain.content.model import RequestContent, written
from apps.production.domain.content.quantities import format_duration, format_size

#: Fewer events make a job that mostly starts and stops.
FEW_EVENTS = 10
#: Files that storage and tape take well.
SMALL_FILE, LARGE_FILE = 10 * 10**6, 20 * 10**9
SMALL_MERGED, LARGE_MERGED = 200 * 10**6, 20 * 10**9
MAX_SEED = 900_000_000
DAY = 86_400


@rule(Severity.SHOULD)
def events_per_job(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """A job has more than a handful of events."""
    for path, stage in stages(content):
        if stage.events and stage.jobs and stage.jobs <= stage.events < FEW_EVENTS * stage.jobs:
            each = stage.events / stage.jobs
            yield Problem(
                f"{path}.jobs", f"Only {each:.3g} events a job. Are these numbers of events and of jobs right?"
            )


@rule(Severity.SHOULD)
def even_jobs(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Events divide evenly among the jobs that make them."""
    for path, stage in stages(content):
        if stage.kind == "generation" and stage.events and stage.jobs and stage.jobs <= stage.events:
            each, rest = divmod(stage.events, stage.jobs)
            if rest:
                events = each * stage.jobs
                yield Problem(
                    f"{path}.events",
                    f"{stage.jobs:,} jobs of {each:,} events make {events:,}, {rest:,} fewer than asked for.",
                    Mend(f"Ask for {events:,}", {f"{path}.events": events}),
                )


@rule(Severity.SHOULD)
def file_size(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """A job's output is a file that storage takes well: between 10 MB and 20 GB."""
    for path, stage in stages(content):
        size = number(stage, "output_event_bytes")
        if not size or not stage.events or not stage.jobs:
            continue
        each = round(size * stage.events / stage.jobs)
        if not SMALL_FILE <= each <= LARGE_FILE:
            what = "small: take fewer jobs or add a merge" if each < SMALL_FILE else "large: take more jobs"
            yield Problem(f"{path}.jobs", f"By the size of an event each job writes {_about(each)}, which is {what}.")


def _about(size: int) -> str:
    digits = max(0, len(str(size)) - 3)
    return format_size(round(size, -digits))


@rule(Severity.SHOULD)
def merge_size(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Merged files are between 200 MB and 20 GB."""
    for path, stage in stages(content):
        size = number(stage, "target_bytes")
        if size and not SMALL_MERGED <= size <= LARGE_MERGED:
            best = SMALL_MERGED if size < SMALL_MERGED else LARGE_MERGED
            here = f"{path}.arguments.target_bytes"
            yield Problem(
                here,
                f"Files between {format_size(SMALL_MERGED)} and {format_size(LARGE_MERGED)} suit disk and tape.",
                Mend(f"Take {format_size(best)}", {here: best}),
            )


@rule(Severity.MUST)
def merge_jobs(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """A merge has fewer jobs than files to read."""
    for path, stage in stages(content):
        files = number(stage, "files")
        if number(stage, "target_bytes") and files and stage.jobs and stage.jobs >= files:
            yield Problem(
                f"{path}.jobs", f"{stage.jobs:,} jobs for {int(files):,} files merge nothing: take fewer jobs."
            )


@rule(Severity.MUST)
def jobs_have_files(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """A stage that reads files has at least one for each job."""
    for path, stage in stages(content):
        files = number(stage, "files")
        if not number(stage, "target_bytes") and files and stage.jobs and stage.jobs > files:
            yield Problem(
                f"{path}.jobs",
                f"More jobs than files ({int(files):,}): some would have nothing to read.",
                Mend(f"Take {int(files):,} jobs", {f"{path}.jobs": int(files)}),
            )


@rule(Severity.MUST)
def seed_room(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The last job's seed is one that generators take."""
    first = number(content, "first_seed")
    jobs = (content.stages[0].jobs if content.stages else None) or 0
    if first and first + jobs - 1 > MAX_SEED:
        path = "arguments.first_seed"
        mend = Mend(f"Begin with {MAX_SEED - jobs + 1:,}", {path: MAX_SEED - jobs + 1}) if jobs < MAX_SEED else None
        yield Problem(path, f"Job {jobs:,} would take a seed above {MAX_SEED:,}.", mend)


def _stop(content: RequestContent) -> date | None:
    try:
        return date.fromisoformat(text(content, "stop_on"))
    except ValueError:
        return None


@rule(Severity.MUST)
def stop_ahead(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Keep-up stops on a later day than today."""
    stop = _stop(content)
    if stop and stop <= facts.today:
        yield Problem("arguments.stop_on", "It would stop before it begins: give a day after today.")


@rule(Severity.SHOULD)
def stop_by_deadline(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Keep-up stops no later than its results are needed."""
    stop = _stop(content)
    if stop and content.deadline and stop > content.deadline:
        yield Problem(
            "deadline",
            f"Files are taken up until {stop:%-d %b %Y}, after this day.",
            Mend(f"Take {stop:%-d %b %Y}", {"deadline": stop}),
        )


@rule(Severity.MUST)
def split_is_whole(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """A split per N files says how many files."""
    if text(content, "split") == "per N files" and not number(content, "files_per_job"):
        path = "arguments.files_per_job"
        yield Problem(
            path, "Say how many files one job takes.", Mend("One file a job", {"arguments.split": "per file"})
        )


@rule(Severity.SHOULD)
def cap_keeps_up(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The most jobs at once are enough for the jobs that are expected until the stop."""
    cap, stop = number(content, "most_in_flight"), _stop(content)
    if not cap or not stop or stop <= facts.today:
        return
    seconds = (stop - facts.today).days * DAY
    needed = sum((stage.jobs or 0) * (stage.wall_seconds or 0) for stage in content.stages) / seconds
    if needed > cap:
        path, enough = "arguments.most_in_flight", int(needed) + 1
        yield Problem(
            path,
            f"If jobs take all their time, {enough:,} must run at once to be done by the stop.",
            Mend(f"Allow {enough:,}", {path: enough}) if enough <= 100_000 else None,
        )


@rule(Severity.SHOULD)
def cadence_within_latency(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Files are taken up more often than the latency that is wished."""
    cadence, latency = number(content, "cadence"), number(content, "latency")
    if cadence and latency and cadence > latency:
        yield Problem(
            "arguments.cadence",
            f"Files wait up to {format_duration(int(cadence))} before they are taken up; "
            f"their output is wished within {format_duration(int(latency))}.",
            Mend(f"Every {format_duration(int(latency))}", {"arguments.cadence": int(latency)})
            if latency >= 300
            else None,
        )


@rule(Severity.MUST)
def fits_a_cluster(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Some cluster takes jobs of this memory and wall time together."""
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
                f"No cluster offers a job more than {format_size(most)}.",
                Mend(f"Take {format_size(most)}", {f"{path}.memory_bytes": most}),
            )
        else:
            longest = max(o.wall_seconds or 0 for o in roomy)
            yield Problem(
                f"{path}.wall_seconds",
                f"Where a job may have {written('memory_bytes', memory) or 'this memory'}, it may run "
                f"{format_duration(longest)} at most.",
                Mend(f"Take {format_duration(longest)}", {f"{path}.wall_seconds": longest}),
            )
