"""The interface of checks: functions of facts and limits that yield judgements.

Checks do not access the database.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any

from apps.core.domain.plugins import first_paragraph
from apps.quality.checks.facts import Facts, StageFacts
from apps.quality.enums import Effect, Outcome, Unknown


@dataclass(frozen=True)
class Number:
    """A figure that a judgement is based on, with a link to its source."""

    name: str
    value: float | str | None
    link: str = ""


@dataclass(frozen=True)
class Limit:
    """A number that admins can change, with its default."""

    name: str
    default: float | None
    help: str


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The judgement of a stage or of the request.

    `subject` names the item if a check judges several.
    """

    outcome: Outcome
    why: str
    stage: StageFacts | None = None
    subject: str = ""
    value: float | None = None
    threshold: float | None = None
    unit: str = ""
    numbers: tuple[Number, ...] = ()


Limits = Mapping[str, float | None]
Judge = Callable[[Facts, Limits], Iterator[Judgement]]
StageJudge = Callable[[StageFacts, Facts, Limits], Iterator[Judgement]]


@dataclass(frozen=True)
class QualityCheck:
    """A check with its texts, limits and default effects."""

    title: str
    description: str
    judge: Judge = field(compare=False)
    limits: tuple[Limit, ...] = ()
    effect: Effect = Effect.BLOCK
    unknown: Unknown = Unknown.BLOCK

    def __call__(self, facts: Facts, limits: Limits) -> Iterator[Judgement]:
        return self.judge(facts, limits)


def quality_check(
    title: str, *limits: Limit, effect: Effect = Effect.BLOCK, unknown: Unknown = Unknown.BLOCK
) -> Callable[[Judge], QualityCheck]:
    """Turn a function into a check. The first paragraph of its docstring is the description."""

    def make(judge: Judge) -> QualityCheck:
        return QualityCheck(title, first_paragraph(judge), judge, limits, effect, unknown)

    return make


def stage_check(title: str, *limits: Limit, **effects: Any) -> Callable[[StageJudge], QualityCheck]:
    """Turn a function of a stage into a check of every stage, as `quality_check` does."""

    def make(judge: StageJudge) -> QualityCheck:
        @wraps(judge)
        def every(facts: Facts, limits: Limits) -> Iterator[Judgement]:
            for stage in facts.stages:
                for judgement in judge(stage, facts, limits):
                    yield replace(judgement, stage=stage)

        return quality_check(title, *limits, **effects)(every)

    return make


def undetermined(why: str, numbers: tuple[Number, ...] = (), subject: str = "") -> Judgement:
    return Judgement(outcome=Outcome.UNKNOWN, why=why, numbers=numbers, subject=subject)


def fraction(
    value: float,
    why: str,
    numbers: tuple[Number, ...],
    *,
    warn: float | None = None,
    fail: float | None = None,
) -> Judgement:
    """Judge a fraction that should be small."""
    outcome, threshold = above(value, warn=warn, fail=fail)
    return Judgement(
        outcome=outcome, why=why, value=value, threshold=threshold, unit="part", numbers=numbers
    )


def above(value: float, *, warn: float | None, fail: float | None) -> tuple[Outcome, float | None]:
    """Judge a value that should be small, and return the outcome and the relevant threshold.

    None is no limit.
    """
    if fail is not None and value > fail:
        return Outcome.FAILED, fail
    if warn is not None and value > warn:
        return Outcome.WARNED, warn
    return Outcome.PASSED, fail if warn is None else warn


def below(value: float, *, warn: float | None, fail: float | None) -> tuple[Outcome, float | None]:
    """Judge a value that should be large, and return the outcome and the relevant threshold.

    None is no limit.
    """
    outcome, threshold = above(
        -value, warn=None if warn is None else -warn, fail=None if fail is None else -fail
    )
    return outcome, None if threshold is None else -threshold
