"""Checks of event and file counts: requested, read and written."""

from collections.abc import Iterator
from typing import Any

from apps.quality.checks.base import Judgement, Limit, Limits, Number, above, quality_check
from apps.quality.checks.facts import Facts, StageFacts
from apps.quality.enums import Outcome, Unknown

#: Arguments of a stage that give the fraction of events it selects; 1 if neither is given.
_FRACTIONS = ("passing", "filter_efficiency")
#: Expected counts of selecting stages follow from a fraction and are not exact.
_SELECTED = Limit("most_off_selected", 0.1, "The same for stages that select events, as by “Part that passes”.")


def expected_part(stage: StageFacts) -> float | None:
    """Return the fraction of its events that a stage should write; None for an unspecified selection."""
    for name in _FRACTIONS:
        value: Any = stage.arguments.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return None if stage.kind == "skim" else 1.0


def _off(value: int, expected: float) -> float:
    """Return the relative deviation from an expected value; 1 if that is zero."""
    if expected == 0:
        return 0.0 if value == 0 else 1.0
    return abs(value - expected) / expected


def _limit(limits: Limits, part: float) -> float | None:
    return limits["most_off"] if part == 1 else limits["most_off_selected"]


def _unknown(stage: StageFacts, why: str, numbers: tuple[Number, ...], subject: str = "") -> Judgement:
    return Judgement(stage=stage, subject=subject, outcome=Outcome.UNKNOWN, why=why, numbers=numbers)


@quality_check(
    "Requested events written",
    Limit("most_off", 0, "Allowed relative deviation of events written from events requested."),
    _SELECTED,
)
def events_delivered(facts: Facts, limits: Limits) -> Iterator[Judgement]:
    """Each stage has written the requested events; more than requested is a warning."""
    for stage in facts.stages:
        part = expected_part(stage)
        if not stage.events_asked or part is None:
            continue
        expected = stage.events_asked * part
        numbers: tuple[Number, ...] = (
            Number("events requested", stage.events_asked),
            Number("events written", stage.events_out),
        )
        numbers += () if part == 1 else (Number("part that passes", part),)
        if stage.events_out is None:
            yield _unknown(stage, "Its jobs did not report how many events they wrote.", numbers)
            continue
        off = _off(stage.events_out, expected)
        outcome, threshold = above(off, warn=None, fail=_limit(limits, part))
        if outcome is Outcome.FAILED and stage.events_out > expected:
            outcome = Outcome.WARNED
        why = f"{stage.events_out:,} events were written, {expected:,.0f} expected."
        yield Judgement(
            stage=stage, outcome=outcome, why=why, value=off, threshold=threshold, unit="part", numbers=numbers
        )


@quality_check(
    "Events in = events out",
    Limit("most_off", 0, "Allowed relative deviation of events written from events read."),
    _SELECTED,
)
def events_kept(facts: Facts, limits: Limits) -> Iterator[Judgement]:
    """Each stage writes as many events as it reads, or the fraction that it selects."""
    for stage in facts.stages:
        before = facts.before(stage)
        if before is None and not stage.input_dataset:
            continue
        read = stage.events_in
        numbers = (Number("events read", read), Number("events written", stage.events_out))
        if read is None or stage.events_out is None:
            if stage.events_asked is None and before is None:
                continue  # events are not counted at all here
            what = "read" if read is None else "wrote"
            yield _unknown(stage, f"Its jobs did not report how many events they {what}.", numbers)
            continue
        part = expected_part(stage)
        if part is None:
            few = stage.events_out <= read
            why = f"{stage.events_out:,} of {read:,} events were selected."
            yield Judgement(
                stage=stage, outcome=Outcome.PASSED if few else Outcome.FAILED, why=why, numbers=numbers,
                value=stage.events_out / read if read else None, unit="part",
            )  # fmt: skip
            continue
        off = _off(stage.events_out, read * part)
        outcome, threshold = above(off, warn=None, fail=_limit(limits, part))
        why = f"{read:,} events were read and {stage.events_out:,} written" + (
            "." if part == 1 else f", {read * part:,.0f} expected."
        )
        yield Judgement(
            stage=stage, outcome=outcome, why=why, value=off, threshold=threshold, unit="part", numbers=numbers
        )


@quality_check(
    "Nothing lost between stages",
    Limit("most_off", 0, "Allowed relative deviation of what a stage reads from what the previous one wrote."),
    unknown=Unknown.PASS,
)
def handed_on(facts: Facts, limits: Limits) -> Iterator[Judgement]:
    """Each stage has read all files and events written by the previous one."""
    for stage in facts.stages:
        before = facts.before(stage)
        if before is None:
            continue
        for what, written, read in (
            ("files", before.files_out, stage.files_in),
            ("events", before.events_out, stage.events_in),
        ):
            numbers = (Number(f"{what} written by {before.name}", written), Number(f"{what} read", read))
            if written is None or read is None:
                who = before.name if written is None else "its jobs"
                yield _unknown(stage, f"The number of {what} was not reported by {who}.", numbers, what)
                continue
            off = _off(read, written)
            outcome, threshold = above(off, warn=None, fail=limits["most_off"])
            why = f"{before.name} wrote {written:,} {what}, {read:,} were read."
            yield Judgement(
                stage=stage, subject=what, outcome=outcome, why=why, value=off, threshold=threshold, unit="part",
                numbers=numbers,
            )  # fmt: skip
