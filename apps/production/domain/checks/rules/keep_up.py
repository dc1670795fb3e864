"""Rules for keep-up processing."""

from collections.abc import Iterator
from datetime import date

from apps.core.domain.quantities import round_duration
from apps.production.domain.checks.base import Facts, Fix, Problem, Severity, rule
from apps.production.domain.checks.rules.declared import number, text
from apps.production.domain.content.model import RequestContent

DAY = 86_400


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
            "arguments.stop_on",
            f"The stop date is not in the future. Choose a date after {facts.today:%-d %b %Y}.",
        )


@rule(Severity.WARNING)
def stop_by_deadline(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Keep-up processing stops by the deadline."""
    stop = _stop(content)
    if stop and content.deadline and stop > content.deadline:
        fix = Fix(f"Use {stop:%-d %b %Y}", {"deadline": stop})
        yield Problem(
            "deadline", f"Keep-up processing runs until {stop:%-d %b %Y}, after the deadline.", fix
        )


@rule(Severity.ERROR)
def files_listed(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The catalogue lists the files of keep-up processing that the portal submits."""
    if content.workflow.takes_files and facts.listing_fault:
        yield Problem(
            "stages.0.input_dataset", f"The files cannot be listed. {facts.listing_fault}"
        )


@rule(Severity.ERROR)
def split_complete(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """A split “per N files” or “by size” has a number of files or a size per job."""
    if text(content, "split") == "by size" and not number(content, "group_bytes"):
        yield Problem(
            "arguments.group_bytes",
            "Enter the size of the files of a job.",
            Fix("One file per job", {"arguments.split": "per file"}),
        )
    if text(content, "split") == "per N files" and not number(content, "files_per_job"):
        path = "arguments.files_per_job"
        yield Problem(
            path,
            "Enter the number of files per job.",
            Fix("One file per job", {"arguments.split": "per file"}),
        )


@rule(Severity.WARNING)
def job_cap_sufficient(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The maximum number of concurrent jobs suffices for the jobs expected before the stop date."""
    cap = number(content, "most_in_flight")
    stop = _stop(content)
    if not cap or not stop or stop <= facts.today:
        return
    seconds = (stop - facts.today).days * DAY
    needed = (
        sum((stage.jobs or 0) * (stage.wall_seconds or 0) for stage in content.stages) / seconds
    )
    if needed > cap:
        path = "arguments.most_in_flight"
        enough = int(needed) + 1
        yield Problem(
            path,
            (
                f"If jobs run to their wall time limit, {enough:,} must run at once to finish by "
                "the stop date."
            ),
            Fix(f"Allow {enough:,}", {path: enough}) if enough <= 100_000 else None,
        )


@rule(Severity.WARNING)
def cadence_within_latency(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The cadence is not longer than the target latency."""
    cadence = number(content, "cadence")
    latency = number(content, "latency")
    if cadence and latency and cadence > latency:
        yield Problem(
            "arguments.cadence",
            f"Files wait up to {round_duration(int(cadence))} before they are processed, "
            f"but the target latency is {round_duration(int(latency))}.",
            Fix(f"Every {round_duration(int(latency))}", {"arguments.cadence": int(latency)})
            if latency >= 300
            else None,
        )
