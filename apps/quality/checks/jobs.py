"""Checks of how the jobs of a stage ended, from the roll-ups of jobs and a sample of logs."""

from collections.abc import Iterator

from apps.quality.checks.base import Judgement, Limit, Limits, Number, above, quality_check
from apps.quality.checks.facts import Facts, StageFacts
from apps.quality.enums import Effect, Outcome, Unknown


@quality_check(
    "All jobs have delivered",
    Limit("warn_missing", 0, "More missing than this part of the jobs asked for is a warning."),
    Limit("most_missing", 0, "More missing than this part of the jobs asked for fails."),
)
def missing_jobs(facts: Facts, limits: Limits) -> Iterator[Judgement]:
    """As many jobs of each stage have completed as were asked for."""
    for stage in facts.stages:
        if not stage.jobs_asked:
            continue
        numbers = (
            Number("jobs asked for", stage.jobs_asked),
            Number("completed", stage.jobs.good, facts.link(stage, "completed")),
            *([Number("of a test, not counted", stage.jobs.tests)] if stage.jobs.tests else []),
        )
        if not stage.jobs.ended:
            yield _no_jobs(stage, numbers)
            continue
        missing = max(0, stage.jobs_asked - stage.jobs.good)
        part = missing / stage.jobs_asked
        outcome, threshold = above(part, warn=limits["warn_missing"], fail=limits["most_missing"])
        why = (
            f"{missing:,} of {stage.jobs_asked:,} jobs have not completed."
            if missing
            else f"All {stage.jobs_asked:,} jobs have completed."
        )
        if missing and stage.jobs.tests:
            why += f" {stage.jobs.tests:,} that were submitted while it was testing are not counted."
        why += f" {stage.accepted}" if stage.accepted and missing else ""
        yield Judgement(
            stage=stage, outcome=outcome, why=why, value=part, threshold=threshold, unit="part", numbers=numbers
        )


def _no_jobs(stage: StageFacts, numbers: tuple[Number, ...]) -> Judgement:
    why = "No job of this stage was seen: accounting tells of none."
    return Judgement(stage=stage, outcome=Outcome.UNKNOWN, why=why, numbers=numbers)


@quality_check(
    "Few jobs failed",
    Limit("warn_failed", 0.05, "More failed attempts than this part of all is a warning."),
    Limit("most_failed", 0.25, "More failed attempts than this part of all fails."),
)
def failure_fraction(facts: Facts, limits: Limits) -> Iterator[Judgement]:
    """Only a small part of the attempts failed, also where a retry helped."""
    for stage in facts.stages:
        numbers = (
            Number("attempts that ended", stage.jobs.ended, facts.link(stage, "jobs")),
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
    "No errors in logs of jobs that ended well",
    Limit("warn_bad", 0, "A known error in more than this part of the logs read is a warning."),
    Limit("most_bad", 0.1, "A known error in more than this part of the logs read fails."),
    Limit("sample", 10, "Logs read of each stage, at most 100; 0 for none."),
    effect=Effect.BLOCK,
    unknown=Unknown.PASS,
)
def log_errors(facts: Facts, limits: Limits) -> Iterator[Judgement]:
    """Logs of some jobs that completed show none of the known errors that are causes."""
    if not limits["sample"]:
        return
    for stage in facts.stages:
        logs = stage.logs
        numbers = (
            Number("logs looked for", logs.asked),
            Number("read", logs.read),
            Number("with a known error", logs.bad),
            *(Number(f"error {pattern}", count) for pattern, count in sorted(logs.patterns.items())),
        )
        if not logs.read:
            why = "No log of a job that completed could be read." if logs.asked else "No job of it has completed."
            yield Judgement(stage=stage, outcome=Outcome.UNKNOWN, why=why, numbers=numbers)
            continue
        part = logs.bad / logs.read
        outcome, threshold = above(part, warn=limits["warn_bad"], fail=limits["most_bad"])
        why = (
            f"{logs.bad} of {logs.read} logs of jobs that completed show a known error, such as “{logs.line[:200]}”."
            if logs.bad
            else f"None of {logs.read} logs of jobs that completed shows a known error."
        )
        yield Judgement(
            stage=stage, outcome=outcome, why=why, value=part, threshold=threshold, unit="part", numbers=numbers
        )
