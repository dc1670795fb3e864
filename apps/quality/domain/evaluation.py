"""Asking every check about facts: what each says becomes a row, whatever a third party's check does."""

import hashlib
import json
import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from apps.jobs.domain.records import clean_text
from apps.quality.checks.base import Judgement, Number, QualityCheck
from apps.quality.checks.facts import Facts
from apps.quality.domain.thresholds import Setting
from apps.quality.enums import Effect, Outcome, Unknown
from apps.quality.models import MAX_NAME, QualityResult

log = logging.getLogger(__name__)

#: One check says no more than so much, each in no more words than so many.
MOST_JUDGEMENTS = 2_000
MAX_WHY = 2_000
MOST_NUMBERS = 50


@dataclass(frozen=True)
class _Said:
    name: str
    title: str
    setting: Setting
    judgement: Judgement


def evaluate(facts: Facts, checks: Mapping[str, QualityCheck], settings: Mapping[str, Setting]) -> list[QualityResult]:
    """Return the results, without their run, in the order of stages and checks; the request as a whole comes first."""
    said = [one for name, check in checks.items() for one in _ask(name, check, settings[name], facts)]
    said.sort(key=lambda one: -1 if one.judgement.stage is None else one.judgement.stage.position)
    seen: dict[tuple[Any, ...], int] = {}
    return [_result(one, place, seen) for place, one in enumerate(said)]


def _ask(name: str, check: QualityCheck, setting: Setting, facts: Facts) -> Iterator[_Said]:
    if setting.effect == Effect.OFF:
        return
    try:
        judgements = [_checked(one) for one in islice(check(facts, setting.limits), MOST_JUDGEMENTS)]
    except Exception as error:  # a third party's check may raise anything; the others must still speak
        log.exception("the quality check %s broke", name)
        judgements = [Judgement(outcome=Outcome.UNKNOWN, why=f"The check broke ({type(error).__name__}).")]
    for judgement in judgements:
        yield _Said(name, check.title, setting, judgement)


def _checked(judgement: Judgement) -> Judgement:
    if not isinstance(judgement, Judgement) or not isinstance(judgement.outcome, Outcome):
        raise TypeError("a check yields judgements with an outcome")
    return judgement


def _result(said: _Said, place: int, seen: dict[tuple[Any, ...], int]) -> QualityResult:
    one, setting = said.judgement, said.setting
    outcome = one.outcome
    if outcome is Outcome.FAILED and setting.effect == Effect.WARN:
        outcome = Outcome.WARNED
    blocks = outcome is Outcome.FAILED or (
        outcome is Outcome.UNKNOWN and setting.effect == Effect.BLOCK and setting.unknown == Unknown.BLOCK
    )
    position = one.stage.position if one.stage else None
    row = QualityResult(
        place=place,
        position=position,
        stage_name=one.stage.name if one.stage else "",
        check_name=said.name,
        title=said.title[:200],
        subject=_once(seen, position, said.name, clean_text(str(one.subject), MAX_NAME)),
        outcome=outcome,
        blocks=blocks,
        value=_finite(one.value),
        threshold=_finite(one.threshold),
        unit=one.unit[:16],
        why=clean_text(str(one.why), MAX_WHY),
        numbers=[_number(number) for number in one.numbers[:MOST_NUMBERS]],
    )
    row.digest = _digest(row)
    return row


def _once(seen: dict[tuple[Any, ...], int], position: int | None, check: str, subject: str) -> str:
    """Return the subject, with a number where the check has spoken of it before."""
    key = (position, check, subject)
    seen[key] = seen.get(key, 0) + 1
    return subject if seen[key] == 1 else _once(seen, position, check, f"{subject[: MAX_NAME - 8]} #{seen[key]}")


def _number(number: Number) -> dict[str, Any]:
    value = number.value
    if isinstance(value, int | float):
        value = _finite(value)
    elif value is not None:
        value = clean_text(str(value), 500)
    safe = number.link.startswith(("http://", "https://")) or (
        number.link.startswith("/") and not number.link.startswith("//")
    )
    return {"name": clean_text(number.name, 200), "value": value, "link": number.link[:500] if safe else ""}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _digest(row: QualityResult) -> str:
    """Return the hash of what the result says: a waiver holds for just that."""
    numbers = [[number["name"], number["value"]] for number in row.numbers]
    told = [row.position, row.check_name, row.subject, row.outcome, row.value, row.threshold, row.why, numbers]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
