"""Checks of output files: complete, plausible in size, without duplicates, in the catalogue."""

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
from apps.quality.enums import Outcome, Unknown

#: How many files a result names.
_SHOWN = 5


@stage_check(
    "No missing output",
    Limit("files_per_job", 1, "Minimum number of files per completed job."),
)
def files_written(stage: StageFacts, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    """Completed jobs have written their files, and all counted files are listed."""
    counted = stage.files_out
    named = stage.files.count if stage.files else None
    written = named if counted is None else counted
    numbers = (
        Number("files written", counted),
        Number("files listed", named),
        Number("completed jobs", stage.jobs.completed, facts.link(stage, "completed")),
    )
    if written is None:
        yield undetermined("Its jobs did not report the files they wrote.", numbers)
        return
    least = _jobs_that_write(stage) * (limits["files_per_job"] or 0)
    why = f"{written:,} files were written."
    outcome = Outcome.PASSED
    if written < least:
        missing = round(least - written)
        verb = "is" if missing == 1 else "are"
        why = f"{missing:,} of {least:,.0f} files {verb} missing: {written:,} were written."
        outcome = Outcome.FAILED
    elif named is not None and named < written:
        why = f"{written - named:,} of {written:,} files are not listed."
        outcome = Outcome.FAILED
    yield Judgement(
        outcome=outcome, why=why, value=written, threshold=least, unit="files", numbers=numbers
    )


def _jobs_that_write(stage: StageFacts) -> int:
    """Return how many jobs should have files.

    These are the completed jobs, or the requested ones if no job was seen.
    """
    if not stage.jobs.ended:
        return stage.jobs_requested or 0
    return min(stage.jobs.completed, stage.jobs_requested or stage.jobs.completed)


@stage_check(
    "File sizes",
    Limit("smallest_bytes", 1, "Smaller files fail."),
    Limit("largest_bytes", 50_000_000_000, "Larger files fail."),
    Limit(
        "most_off",
        1.0,
        "Allowed relative deviation of the mean size from the expected size; more is a warning.",
    ),
    unknown=Unknown.PASS,
)
def file_sizes(stage: StageFacts, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    """Every file is within bounds, and the mean size is as expected from the request."""
    files = stage.files
    if files is None:
        yield undetermined("Its jobs did not report their files with sizes.")
        return
    least = limits["smallest_bytes"] or 0
    most = limits["largest_bytes"]
    wrong = []
    for name, size in files.sizes:
        if size < least or (most and size > most):
            wrong.append(f"{name} ({size:,} B)")
    mean = files.size_bytes / files.count
    expected = expected_bytes(stage)
    numbers = (
        Number("files", files.count),
        Number("smallest, in bytes", files.smallest_bytes),
        Number("largest, in bytes", files.largest_bytes),
        Number("mean, in bytes", round(mean)),
        *((Number("expected, in bytes", round(expected)),) if expected else ()),
    )
    if wrong:
        more = "" if len(wrong) <= _SHOWN else " and others"
        why = f"Too small or too large: {', '.join(wrong[:_SHOWN])}{more}."
        yield Judgement(outcome=Outcome.FAILED, why=why, value=mean, unit="bytes", numbers=numbers)
        return
    why = f"{files.count:,} files from {files.smallest_bytes:,} to {files.largest_bytes:,} bytes"
    if expected:
        why += f", {expected:,.0f} expected on average."
        yield fraction(abs(mean - expected) / expected, why, numbers, warn=limits["most_off"])
    else:
        why += "; the request gives no expected size."
        yield Judgement(outcome=Outcome.PASSED, why=why, unit="part", numbers=numbers)


def expected_bytes(stage: StageFacts) -> float | None:
    """Return the expected file size, by merge target or events per file; None if unknown."""
    target = stage.arguments.get("target_bytes")
    if isinstance(target, int | float) and target > 0:
        return float(target)
    event = stage.arguments.get("output_event_bytes")
    written = stage.files_out or (stage.files.count if stage.files else 0)
    if isinstance(event, int | float) and stage.events_out and written:
        return float(event) * stage.events_out / written
    return None


@stage_check("No duplicates", unknown=Unknown.PASS)
def duplicates(stage: StageFacts, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    """No file is listed twice, here or by another request,
    and no other request writes to the same dataset.
    """
    others = stage.also_written_by
    files = stage.files
    if others:
        why = f"{stage.output_dataset} is also written by {', '.join(others[:_SHOWN])}."
        yield Judgement(
            subject="dataset", outcome=Outcome.WARNED, why=why, value=len(others), threshold=0
        )
    if files is None:
        yield undetermined("Its jobs did not report their files.", subject="files")
        return

    duplicate_count = files.twice_count + files.elsewhere_count
    shown = [
        *files.twice[:_SHOWN],
        *(f"{name} ({other})" for name, other in files.elsewhere[:_SHOWN]),
    ]
    why = f"{files.count:,} files, no duplicates."
    if duplicate_count:
        why = f"Listed more than once: {', '.join(shown)}."
    numbers = (
        Number("duplicates in this request", files.twice_count),
        Number("listed by other requests", files.elsewhere_count),
    )
    outcome = Outcome.FAILED if duplicate_count else Outcome.PASSED
    yield Judgement(
        subject="files",
        outcome=outcome,
        why=why,
        value=duplicate_count,
        threshold=0,
        numbers=numbers,
    )


@stage_check("Catalogue agrees", unknown=Unknown.PASS)
def catalogue(stage: StageFacts, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    """The dataset catalogue has as many files and events as were written."""
    known = stage.catalogued
    if facts.catalogue_error:
        yield undetermined(facts.catalogue_error)
    elif known is not None:
        yield from _catalogued("files", known.files, stage.files_out, known.name)
        yield from _catalogued("events", known.events, stage.events_out, known.name)
    elif stage.arguments.get("catalogued") is True:
        yield undetermined(
            f"{stage.output_dataset} is not in the catalogue, or no catalogue is configured."
        )


def _catalogued(
    what: str, there: int | None, written: int | None, name: str
) -> Iterator[Judgement]:
    if there is None or written is None:
        return
    result = "equal"
    if there != written:
        result = "some are missing" if there < written else "duplicates"
    why = f"The catalogue has {there:,} {what} of {name}, {written:,} were written: {result}."
    numbers = (Number(f"{what} in the catalogue", there), Number(f"{what} written", written))
    outcome = Outcome.PASSED if there == written else Outcome.FAILED
    yield Judgement(
        subject=what,
        outcome=outcome,
        why=why,
        value=there,
        threshold=written,
        unit=what,
        numbers=numbers,
    )
