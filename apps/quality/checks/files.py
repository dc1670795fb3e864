"""Checks of output files: complete, of plausible size, without duplicates, and in the catalogue."""

from collections.abc import Iterator

from apps.quality.checks.base import Judgement, Limit, Limits, Number, above, quality_check
from apps.quality.checks.facts import Facts, StageFacts
from apps.quality.enums import Effect, Outcome, Unknown

#: How many files a result names.
_SHOWN = 5


@quality_check(
    "No missing output",
    Limit("files_per_job", 1, "Minimum number of files per completed job."),
)
def files_written(facts: Facts, limits: Limits) -> Iterator[Judgement]:
    """Completed jobs have written their files, and all counted files are listed."""
    for stage in facts.stages:
        named = stage.files.count if stage.files else None
        written = named if stage.files_out is None else stage.files_out
        numbers = (
            Number("files written", stage.files_out),
            Number("files listed", named),
            Number("completed jobs", stage.jobs.completed, facts.link(stage, "completed")),
        )
        if written is None:
            why = "Its jobs did not report the files they wrote."
            yield Judgement(stage=stage, outcome=Outcome.UNKNOWN, why=why, numbers=numbers)
            continue
        least = _jobs_that_write(stage) * (limits["files_per_job"] or 0)
        if written < least:
            why = f"{least - written:,.0f} of {least:,.0f} files are missing: {written:,} were written."
            outcome = Outcome.FAILED
        elif named is not None and stage.files_out is not None and named < stage.files_out:
            why = f"{stage.files_out - named:,} of {stage.files_out:,} files are not listed."
            outcome = Outcome.FAILED
        else:
            why, outcome = f"{written:,} files were written.", Outcome.PASSED
        yield Judgement(
            stage=stage, outcome=outcome, why=why, value=written, threshold=least, unit="files", numbers=numbers
        )


def _jobs_that_write(stage: StageFacts) -> int:
    """Return how many jobs should have files: completed ones, or the requested ones if no job was seen."""
    if not stage.jobs.ended:
        return stage.jobs_asked or 0
    return min(stage.jobs.completed, stage.jobs_asked or stage.jobs.completed)


@quality_check(
    "File sizes",
    Limit("smallest_bytes", 1, "Smaller files fail."),
    Limit("largest_bytes", 50_000_000_000, "Larger files fail."),
    Limit("most_off", 1.0, "Allowed relative deviation of the mean size from the expected size; more is a warning."),
    unknown=Unknown.PASS,
)
def file_sizes(facts: Facts, limits: Limits) -> Iterator[Judgement]:
    """Every file is within bounds, and the mean size is as expected from the request."""
    for stage in facts.stages:
        files = stage.files
        if files is None:
            why = "Its jobs did not report their files with sizes."
            yield Judgement(stage=stage, outcome=Outcome.UNKNOWN, why=why)
            continue
        least, most = limits["smallest_bytes"] or 0, limits["largest_bytes"]
        wrong = [f"{name} ({size:,} B)" for name, size in files.sizes if size < least or (most and size > most)]
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
            rest = "" if len(wrong) <= _SHOWN else " and others"
            why = f"Too small or too large: {', '.join(wrong[:_SHOWN])}{rest}."
            yield Judgement(stage=stage, outcome=Outcome.FAILED, why=why, value=mean, unit="bytes", numbers=numbers)
            continue
        off = abs(mean - expected) / expected if expected else 0.0
        outcome, threshold = above(off, warn=limits["most_off"], fail=None)
        why = f"{files.count:,} files from {files.smallest_bytes:,} to {files.largest_bytes:,} bytes"
        why += f", {expected:,.0f} expected on average." if expected else "; the request gives no expected size."
        yield Judgement(
            stage=stage, outcome=outcome, why=why, value=off if expected else None,
            threshold=threshold if expected else None, unit="part", numbers=numbers,
        )  # fmt: skip


def expected_bytes(stage: StageFacts) -> float | None:
    """Return the expected file size, by the merge target or the events per file; None if unknown."""
    target = stage.arguments.get("target_bytes")
    if isinstance(target, int | float) and target > 0:
        return float(target)
    event = stage.arguments.get("output_event_bytes")
    written = stage.files_out or (stage.files.count if stage.files else 0)
    if isinstance(event, int | float) and stage.events_out and written:
        return float(event) * stage.events_out / written
    return None


@quality_check("No duplicates", effect=Effect.BLOCK, unknown=Unknown.PASS)
def duplicates(facts: Facts, limits: Limits) -> Iterator[Judgement]:
    """No file is listed twice, here or by another request, and no other request writes to the same dataset."""
    for stage in facts.stages:
        if stage.also_written_by:
            others = ", ".join(stage.also_written_by[:_SHOWN])
            why = f"{stage.output_dataset} is also written by {others}."
            yield Judgement(
                stage=stage, subject="dataset", outcome=Outcome.WARNED, why=why, value=len(stage.also_written_by),
                threshold=0,
            )  # fmt: skip
        files = stage.files
        if files is None:
            why = "Its jobs did not report their files."
            yield Judgement(stage=stage, subject="files", outcome=Outcome.UNKNOWN, why=why)
            continue
        found = files.twice_count + files.elsewhere_count
        shown = [*files.twice[:_SHOWN], *(f"{name} ({other})" for name, other in files.elsewhere[:_SHOWN])]
        why = f"Listed more than once: {', '.join(shown)}." if found else f"{files.count:,} files, no duplicates."
        numbers = (
            Number("duplicates in this request", files.twice_count),
            Number("listed by other requests", files.elsewhere_count),
        )
        yield Judgement(
            stage=stage, subject="files", outcome=Outcome.FAILED if found else Outcome.PASSED, why=why, value=found,
            threshold=0, numbers=numbers,
        )  # fmt: skip


@quality_check("Catalogue agrees", effect=Effect.BLOCK, unknown=Unknown.PASS)
def catalogue(facts: Facts, limits: Limits) -> Iterator[Judgement]:
    """The dataset catalogue has as many files and events as were written."""
    for stage in facts.stages:
        if facts.catalogue_error:
            yield Judgement(stage=stage, outcome=Outcome.UNKNOWN, why=facts.catalogue_error)
            continue
        known = stage.catalogued
        if known is None:
            if stage.arguments.get("catalogued") is True:
                why = f"{stage.output_dataset} is not in the catalogue, or no catalogue is configured."
                yield Judgement(stage=stage, outcome=Outcome.UNKNOWN, why=why)
            continue
        pairs = (("files", known.files, stage.files_out), ("events", known.events, stage.events_out))
        for what, there, written in pairs:
            if there is None or written is None:
                continue
            words = "equal" if there == written else "some are missing" if there < written else "duplicates"
            why = f"The catalogue has {there:,} {what} of {known.name}, {written:,} were written: {words}."
            yield Judgement(
                stage=stage, subject=what, outcome=Outcome.PASSED if there == written else Outcome.FAILED, why=why,
                value=there, threshold=written, unit=what,
                numbers=(Number(f"{what} in the catalogue", there), Number(f"{what} written", written)),
            )  # fmt: skip
