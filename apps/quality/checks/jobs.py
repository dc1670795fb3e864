"""Checks of how the jobs of a stage finished, from hourly totals and a sample of logs."""

from collections.abc import Iterator

from apps.quality.checks.base import (
    Judgement,
    Limit,
    Limits,
    Number,
    fraction,
    stage_check,
    undetermined,
)
from apps.quality.checks.facts import Facts, StageFacts
from apps.quality.enums import Unknown

_NO_JOBS = "Accounting has no job of this stage."


@stage_check(
    "All jobs completed",
    Limit("warn_missing", 0, "A larger fraction of missing jobs is a warning."),
    Limit("most_missing", 0, "A larger fraction of missing jobs fails."),
)
def missing_jobs(stage: StageFacts, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    """The requested number of jobs of each stage has completed."""
    jobs = stage.jobs
    requested = stage.jobs_requested
    if not requested:
        return
    numbers = (
        Number("jobs requested", requested),
        Number("completed", jobs.good, facts.link(stage, "completed")),
        *([Number("tests, not counted", jobs.tests)] if jobs.tests else []),
    )
    if not jobs.ended:
        yield undetermined(_NO_JOBS, numbers)
        return
    why = f"All {requested:,} jobs completed."
    if missing := max(0, requested - jobs.good):
        why = f"{missing:,} of {requested:,} jobs did not complete."
        why += f" {jobs.tests:,} submitted as tests are not counted." if jobs.tests else ""
        why += f" {stage.accepted}" if stage.accepted else ""
    yield fraction(
        missing / requested, why, numbers, warn=limits["warn_missing"], fail=limits["most_missing"]
    )


@stage_check(
    "Failure rate",
    Limit("warn_failed", 0.05, "A larger fraction of failed attempts is a warning."),
    Limit("most_failed", 0.25, "A larger fraction of failed attempts fails."),
)
def failure_fraction(stage: StageFacts, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    """Only a small fraction of the attempts failed, including those that a retry fixed."""
    jobs = stage.jobs
    numbers = (
        Number("finished attempts", jobs.ended, facts.link(stage, "jobs")),
        Number("failed", jobs.failed, facts.link(stage, "failed")),
        Number("retried", jobs.retried),
    )
    if not jobs.ended:
        yield undetermined(_NO_JOBS, numbers)
        return
    part = jobs.failed / jobs.ended
    why = f"{jobs.failed:,} of {jobs.ended:,} attempts failed ({100 * part:.1f} %)."
    yield fraction(part, why, numbers, warn=limits["warn_failed"], fail=limits["most_failed"])


@stage_check(
    "No errors in logs of completed jobs",
    Limit("warn_bad", 0, "Known errors in a larger fraction of the logs are a warning."),
    Limit("most_bad", 0.1, "Known errors in a larger fraction of the logs fail."),
    Limit("sample", 10, "Logs to read per stage, at most 100; 0 for none."),
    unknown=Unknown.PASS,
)
def log_errors(stage: StageFacts, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    """Logs of a sample of completed jobs contain no known error that is a cause."""
    logs = stage.logs
    numbers = (
        Number("logs sampled", logs.sampled),
        Number("read", logs.read),
        Number("with a known error", logs.bad),
        *(Number(f"error {pattern}", count) for pattern, count in sorted(logs.patterns.items())),
    )
    if not limits["sample"]:
        return
    if not logs.read:
        if logs.sampled:
            why = "No log of a completed job could be read."
        else:
            why = "No job of this stage has completed."
        yield undetermined(why, numbers)
        return
    why = f"None of {logs.read} logs of completed jobs contains a known error."
    if logs.bad:
        why = (
            f"{logs.bad} of {logs.read} logs of completed jobs contain a known error, such as "
            f"“{logs.line[:200]}”."
        )
    yield fraction(
        logs.bad / logs.read, why, numbers, warn=limits["warn_bad"], fail=limits["most_bad"]
    )
