"""Checks of event and file counts: requested, read and written."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

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

#: Arguments of a stage with the fraction of events that it selects; 1 without any of them.
_FRACTIONS = ("passing", "filter_efficiency")
#: Expected counts of stages that select events follow from a fraction and are not exact.
_SELECTED = Limit(
    "most_off_selected", 0.1, "The same for stages that select events, as by “Part that passes”."
)


def expected_part(stage: StageFacts) -> float | None:
    """Return the fraction of its events that a stage should write.

    None for a selection without a fraction.
    """
    for name in _FRACTIONS:
        value: Any = stage.arguments.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return None if stage.kind == "skim" else 1.0


def _deviation(value: int, expected: float) -> float:
    """Return the relative deviation from an expected value.

    If a value is expected to be zero, return 1 for any other value.
    """
    if expected == 0:
        return 0.0 if value == 0 else 1.0
    return abs(value - expected) / expected


def _limit(limits: Limits, part: float) -> float | None:
    return limits["most_off"] if part == 1 else limits["most_off_selected"]


@stage_check(
    "Requested events written",
    Limit("most_off", 0, "Allowed relative deviation of events written from events requested."),
    _SELECTED,
)
def events_delivered(stage: StageFacts, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    """Each stage has written the requested events; more than requested is a warning."""
    part = expected_part(stage)
    written = stage.events_out
    if not stage.events_requested or part is None:
        return

    numbers: tuple[Number, ...] = (
        Number("events requested", stage.events_requested),
        Number("events written", written),
    )
    if part != 1:
        numbers += (Number("part that passes", part),)
    if written is None:
        yield undetermined("Its jobs did not report how many events they wrote.", numbers)
        return

    expected = stage.events_requested * part
    why = f"{written:,} events were written, {expected:,.0f} expected."
    judgement = fraction(_deviation(written, expected), why, numbers, fail=_limit(limits, part))
    if judgement.outcome is Outcome.FAILED and written > expected:
        judgement = replace(judgement, outcome=Outcome.WARNED)
    yield judgement


@stage_check(
    "Events in = events out",
    Limit("most_off", 0, "Allowed relative deviation of events written from events read."),
    _SELECTED,
)
def events_kept(stage: StageFacts, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    """Each stage writes as many events as it reads, or the fraction that it selects."""
    before = facts.before(stage)
    read = stage.events_in
    written = stage.events_out
    if before is None and not stage.input_dataset:
        return
    numbers = (Number("events read", read), Number("events written", written))
    if read is None or written is None:
        # Without requested events or a stage before it, the stage does not count events.
        if stage.events_requested is not None or before is not None:
            what = "read" if read is None else "wrote"
            yield undetermined(f"Its jobs did not report how many events they {what}.", numbers)
        return
    part = expected_part(stage)
    if part is None:
        outcome = Outcome.PASSED if written <= read else Outcome.FAILED
        why = f"{written:,} of {read:,} events were selected."
        value = written / read if read else None
        yield Judgement(outcome=outcome, why=why, numbers=numbers, value=value, unit="part")
        return
    why = f"{read:,} events were read and {written:,} written"
    why += "." if part == 1 else f", {read * part:,.0f} expected."
    yield fraction(_deviation(written, read * part), why, numbers, fail=_limit(limits, part))


@stage_check(
    "Nothing lost between stages",
    Limit(
        "most_off",
        0,
        "Allowed relative deviation of what a stage reads from what the previous one wrote.",
    ),
    unknown=Unknown.PASS,
)
def handed_on(stage: StageFacts, facts: Facts, limits: Limits) -> Iterator[Judgement]:
    """Each stage has read all files and events written by the previous one."""
    before = facts.before(stage)
    if before is None:
        return
    for what in ("files", "events"):
        written = getattr(before, f"{what}_out")
        read = getattr(stage, f"{what}_in")
        numbers = (
            Number(f"{what} written by {before.name}", written),
            Number(f"{what} read", read),
        )
        if written is None or read is None:
            who = before.name if written is None else "its jobs"
            yield undetermined(f"The number of {what} was not reported by {who}.", numbers, what)
        else:
            why = f"{before.name} wrote {written:,} {what}, {read:,} were read."
            yield replace(
                fraction(_deviation(read, written), why, numbers, fail=limits["most_off"]),
                subject=what,
            )
