"""Checks of how the jobs of a stage finished, from the hourly totals and a sample of logs."""

from collections.abc import Iterator

from apps.quality.checks.base import Judgement, Limit, Limits, Number, above, quality_check
from apps.quality.checks.facts import Facts, StageFacts
from apps.quality.enums import Effect, Outcome, Unknown


@quality_check(
    "All jobs completed",
    Limit("warn_missing", 0, "A larger fraction of missing jobs is a warning."),
    Limit("most_missing", 0, "A larger fraction of missing jobs fails."),
)
def missing_jobs(facts: Facts, limits: Limits) -> Iterator[Judgement]:
    """The requested number of jobs of each stage has completed."""
    for stage in facts.stages:
        if not stage.jobs_asked:
            continue
        numbers = (
            Number("jobs requested", stage.jobs_asked),
            Number("completed", stage.jobs.good, facts.link(stage, "completed")),
            *([Number("tests, not counted", stage.jobs.tests)] if stage.jobs.tests else []),
        )
        if not stage.jobs.ended:
            yield _no_jobs(stage, numbers)
            continue
        missing = max(0, stage.jobs_asked - stage.jobs.good)
        part = missing / stage.jobs_asked
        outcome, threshold = above(part, warn=limits["warn_missing"], fail=limits["most_missing"])
        why = (
            f"{missing:,} of {stage.jobs_asked:,} jobs did not complete."
            if missing
            else f"All {stage.jobs_asked:,} jobs completed."
        )
        if missing and stage.jobs.tests:
            why += f" {stage.jobs.tests:,} submitted as tests are not counted."
        why += f" {stage.accepted}" if stage.accepted and missing else ""
        yield Judgement(
            stage=stage, outcome=outcome, why=why, value=part, threshold=threshold, unit="part", numbers=numbers
        )


def _no_jobs(stage: StageFacts, numbers: tuple[Number, ...]) -> Judgement:
    why = "Accounting has no job of this stage."
    return Judgement(stage=stage, outcome=Outcome.UNKNOWN, why=why, numbers=numbers)


@quality_check(
    "Failure rate",
    Limit("warn_failed", 0.05, "A larger fraction of failed attempts is a warning."),
    Limit("most_failed", 0.25, "A larger fraction of failed attempts fails."),
)
def failure_fraction(facts: Facts, limits: Limits) -> Iterator[Judgement]:
    """Only a small fraction of the attempts failed, including those that a retry fixed."""
    for stage in facts.stages:
        numbers = (
            Number("finished attempts", stage.jobs.ended, facts.link(stage, "jobs")),
            Number("failed", stage.jobs.failed, facts.link(stage, "failed")),
            Number("retried", stage.jobs.retried),
        )
        if not stage.jobs.ended:
            yield _no_jobs(stage, numbers)
            continue
        part = stage.jobs.failed / stage.jobs.ended
        outcome, threshold = above(part, warn=limits["warn_failed"], fail=limits["most_failed"])
        why = f"{stage.jobs.failed:,} of {stage.jobs.ended:,} attempts failed ({100 * part:.1f} %)."
        yield Judgement(
            stage=stage, outcome=outcome, why=why, value=part, threshold=threshold, unit="part", numbers=numbers
        )


@quality_check(
    "No errors in logs of completed jobs",
    Limit("warn_bad", 0, "Known errors in a larger fraction of the logs are a warning."),
    Limit("most_bad", 0.1, "Known errors in a larger fraction of the logs fail."),
    Limit("sample", 10, "Logs to read per stage, at most 100; 0 for none."),
    effect=Effect.BLOCK,
    unknown=Unknown.PASS,
)
def log_errors(facts: Facts, limits: Limits) -> Iterator[Judgement]:
    """Logs of a sample of completed jobs contain no known error that is a cause."""
    if not limits["sample"]:
        return
    for stage in facts.stages:
        logs = stage.logs
        numbers = (
            Number("logs sampled", logs.asked),
            Number("read", logs.read),
            Number("with a known error", logs.bad),
            *(Number(f"error {pattern}", count) for pattern, count in sorted(logs.patterns.items())),
        )
        if not logs.read:
            why = "No log of a completed job could be read." if logs.asked else "No job of this stage has completed."
            yield Judgement(stage=stage, outcome=Outcome.UNKNOWN, why=why, numbers=numbers)
            continue
        part = logs.bad / logs.read
        outcome, threshold = above(part, warn=limits["warn_bad"], fail=limits["most_bad"])
        why = (
            f"{logs.bad} of {logs.read} logs of completed jobs contain a known error, such as “{logs.line[:200]}”."
            if logs.bad
            else f"None of {logs.read} logs of completed jobs contains a known error."
        )
        yield Judgement(
            stage=stage, outcome=outcome, why=why, value=part, threshold=threshold, unit="part", numbers=numbers
        )
