"""Run every check on the facts of a request. Each judgement becomes a result row."""

import hashlib
import json
import logging
import math
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from apps.jobs.domain.records.conversion import clean_text
from apps.quality.checks.base import Judgement, Number, QualityCheck
from apps.quality.checks.facts import Facts
from apps.quality.domain.thresholds import Setting
from apps.quality.enums import Effect, Outcome, Unknown
from apps.quality.models import MAX_NAME, QualityResult

log = logging.getLogger(__name__)

#: Limits for the output of one check.
MOST_JUDGEMENTS = 2_000
MAX_WHY = 2_000
MOST_NUMBERS = 50


def evaluate(
    facts: Facts, checks: Mapping[str, QualityCheck], settings: Mapping[str, Setting]
) -> list[QualityResult]:
    """Return the results, without their run, ordered by stage and check.

    Results of the whole request come first.
    """
    results: list[QualityResult] = []
    for name, check in checks.items():
        results += _results_of(name, check, settings[name], facts)
    results.sort(key=lambda result: -1 if result.position is None else result.position)

    seen: dict[tuple[Any, ...], int] = {}
    for place, result in enumerate(results):
        result.place = place
        result.subject = _unique_subject(seen, result.position, result.check_name, result.subject)
        numbers = [[number["name"], number["value"]] for number in result.numbers]
        content = [
            result.position,
            result.check_name,
            result.subject,
            result.outcome,
            result.value,
            result.threshold,
            result.why,
            numbers,
        ]
        result.digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return results


def _results_of(
    name: str, check: QualityCheck, setting: Setting, facts: Facts
) -> Iterator[QualityResult]:
    if setting.effect == Effect.OFF:
        return
    try:
        judgements = []
        for judgement in islice(check(facts, setting.limits), MOST_JUDGEMENTS):
            judgements.append(_checked(judgement))
    except Exception as error:  # A third-party check may raise anything.
        log.exception("quality check %s failed", name)
        judgements = [
            Judgement(outcome=Outcome.UNKNOWN, why=f"The check crashed ({type(error).__name__}).")
        ]
    for judgement in judgements:
        outcome = judgement.outcome
        if outcome is Outcome.FAILED and setting.effect == Effect.WARN:
            outcome = Outcome.WARNED
        blocks_unknown = setting.effect == Effect.BLOCK and setting.unknown == Unknown.BLOCK
        yield QualityResult(
            position=judgement.stage.position if judgement.stage else None,
            stage_name=judgement.stage.name if judgement.stage else "",
            check_name=name,
            title=check.title[:200],
            subject=clean_text(str(judgement.subject), MAX_NAME),
            outcome=outcome,
            blocks=outcome is Outcome.FAILED or (outcome is Outcome.UNKNOWN and blocks_unknown),
            value=_finite(judgement.value),
            threshold=_finite(judgement.threshold),
            unit=judgement.unit[:16],
            why=clean_text(str(judgement.why), MAX_WHY),
            numbers=[_number(number) for number in judgement.numbers[:MOST_NUMBERS]],
        )


def _checked(judgement: Judgement) -> Judgement:
    if not isinstance(judgement, Judgement) or not isinstance(judgement.outcome, Outcome):
        raise TypeError("a check yields judgements with an outcome")
    return judgement


def _unique_subject(
    seen: dict[tuple[Any, ...], int], position: int | None, check: str, subject: str
) -> str:
    """Return the subject, with a number if the check has used it before."""
    key = (position, check, subject)
    seen[key] = seen.get(key, 0) + 1
    if seen[key] == 1:
        return subject
    return _unique_subject(seen, position, check, f"{subject[: MAX_NAME - 8]} #{seen[key]}")


def _number(number: Number) -> dict[str, Any]:
    value = number.value
    if isinstance(value, int | float):
        value = _finite(value)
    elif value is not None:
        value = clean_text(str(value), 500)
    safe = number.link.startswith(("http://", "https://")) or (
        number.link.startswith("/") and not number.link.startswith("//")
    )
    return {
        "name": clean_text(number.name, 200),
        "value": value,
        "link": number.link[:500] if safe else "",
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
