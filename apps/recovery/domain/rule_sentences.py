"""What a rule did, why it did nothing, and whether it helps, as sentences. Reads no database."""

from collections.abc import Mapping
from dataclasses import dataclass

from apps.recovery.domain.figures.effect import LEAST_CONTROLS, ArmFigures, RuleEffect, add_up
from apps.recovery.domain.rules.definition import Definition
from apps.recovery.domain.rules.lifecycle import definition_of
from apps.recovery.enums import Arm, Mode
from apps.recovery.models import RecoveryRule

#: Why a rule did not retry jobs that it matched, as a text after their number.
_NOT_RETRIED = {
    Arm.PASSIVE: "on which it would have acted",
    Arm.QUESTION: "beyond a bound",
    Arm.BUDGET: "over its budget",
    Arm.OWNER: "that the portal cannot retry",
    Arm.PERSON: "left to a person",
    Arm.HANDLED: "already retried",
}


@dataclass(frozen=True)
class NotRetried:
    """How many jobs a rule matched and did not retry, for one reason; `arm` filters lists."""

    arm: Arm
    jobs: int
    text: str


def list_not_retried(effect: RuleEffect) -> list[NotRetried]:
    """Return how many matching jobs a rule did not retry, by reason."""
    reasons = []
    for arm, text in _NOT_RETRIED.items():
        jobs = effect.arm(arm).jobs
        if jobs:
            reasons.append(NotRetried(arm, jobs, text))
    return reasons


def explain_idleness(rule: RecoveryRule, effect: RuleEffect) -> str:
    """Return why the current version of a rule has retried no job; empty if it has.

    `effect` has the figures of the current version.
    """
    if effect.retried.jobs or not definition_of(rule).retries:
        return ""
    never = "Never acted" if rule.version == 1 else f"Version {rule.version} has not acted"
    if rule.mode == Mode.OFF:
        return f"{never}: it is off."
    if rule.mode == Mode.PASSIVE:
        matches = "" if effect.matched else " No failed job has matched it."
        return f"{never}: it is passive.{matches}"
    if effect.matched:
        return f"{never}."
    return f"{never}: no failed job has matched it."


def describe_last_day(effects: Mapping[int | None, RuleEffect], *, active: int) -> list[str]:
    """Return what rules did in the last 24 hours, the main sentence first.

    `effects` has the figures of `rule_rows.effects_of_last_day`, `active` is the number of active
    rules.
    """
    retried = add_up(effect.retried for effect in effects.values())
    decided = sum(effect.matched for effect in effects.values())
    if retried.jobs:
        retries = f"Rules decided to retry {_jobs(retried.jobs)} in the last 24 hours."
        return [retries, _describe_outcomes(retried)]
    if not active:
        return ["No rule is active, so failed jobs are left to people."]
    if not decided:
        return ["Rules had nothing to do in the last 24 hours.", "No failed job came to them."]
    return ["Rules retried no job in the last 24 hours.", ""]


def describe_rule_of_last_day(
    rule: RecoveryRule, effect: RuleEffect, current: RuleEffect
) -> list[str]:
    """Return what a rule did in the last 24 hours, or why it has never acted.

    `effect` has the figures of the last 24 hours, `current` the figures of the current version.
    """
    retried = effect.retried
    if retried.jobs:
        retries = f"It decided to retry {_jobs(retried.jobs)} in the last 24 hours."
        return [retries, _describe_outcomes(retried)]
    if why := explain_idleness(rule, current):
        return [why]
    if not definition_of(rule).retries:
        return [f"Jobs that it matched in the last 24 hours: {effect.matched:,}."]
    sentences = ["It retried no job in the last 24 hours."]
    if effect.matched:
        sentences.append(f"{_describe_not_retried(effect)}.")
    return sentences


def _describe_outcomes(retried: ArmFigures) -> str:
    if retried.waiting == retried.jobs:
        return "None has finished yet."
    parts = []
    for jobs, text in (
        (retried.completed, "completed"),
        (retried.failed, "failed again"),
        (retried.waiting, "not finished yet"),
        (retried.not_retried, "not retried in the end"),
    ):
        if jobs:
            parts.append(f"{jobs:,} {text}")
    return f"{', '.join(parts)}."


def _describe_not_retried(effect: RuleEffect) -> str:
    reasons = list_not_retried(effect)
    return ", ".join(f"{_jobs(reason.jobs)} {reason.text}" for reason in reasons)


def describe_effect(rule: RecoveryRule, effect: RuleEffect, *, planned: int) -> list[str]:
    """Return sentences about the outcomes of a rule's retries, and whether it helps.

    `effect` and `planned`, the number of retries that have not started, are those of the current
    version.
    """
    sentences = [explain_idleness(rule, effect) or _describe_retries(effect.acted, planned)]
    if effect.acted.jobs:
        sentences.append(_describe_comparison(effect, definition_of(rule)))
    return sentences


def _describe_retries(acted: ArmFigures, planned: int) -> str:
    if not acted.jobs:
        return "So far it has retried only jobs of its control group."
    if acted.ended:
        completed = f"{acted.completed:,} of {acted.ended:,} finished retries completed"
        share = f"{round(acted.success * 100)} %"
        return f"{completed} ({share}). Not finished: {acted.waiting:,}."
    if planned == acted.jobs:
        return f"Planned retries: {planned:,}. None has run yet."
    return f"Retries: {acted.jobs:,}, of which {planned:,} are planned. None has finished yet."


def _describe_comparison(effect: RuleEffect, definition: Definition) -> str:
    if not definition.limits.control_percent:
        return "Whether it helps is not known: it has no control group."
    difference = effect.difference
    if difference is None:
        return (
            f"Whether it helps is not known yet: of {_jobs(effect.control.jobs)} retried "
            f"unchanged, as the control group, {effect.control.ended} finished. "
            f"{LEAST_CONTROLS} are needed."
        )
    points = abs(round(difference.value * 100))
    if difference.low > 0:
        return f"It helps: of 100 jobs, {points} more complete than after an unchanged retry."
    if difference.high < 0:
        return f"It does harm: of 100 jobs, {points} fewer complete than after an unchanged retry."
    return "It is not clear whether it helps: an unchanged retry does about as well."


def _jobs(jobs: int) -> str:
    return f"{jobs:,} job{'' if jobs == 1 else 's'}"
