"""Tables of recovery rules: figures by rule, by version and by day."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from django.db.models import Count, Max, Q, Sum

from apps.accounts.models import User
from apps.recovery.domain.decision_lists import decided_on_last_day
from apps.recovery.domain.figures.effect import (
    ArmFigures,
    RuleEffect,
    effects_by_rule,
    effects_by_version,
)
from apps.recovery.domain.rule_sentences import NotRetried, explain_idleness, list_not_retried
from apps.recovery.domain.rules.definition import Definition
from apps.recovery.domain.rules.lifecycle import definition_of, visible_rules
from apps.recovery.enums import RETRIED_ARMS, Arm, Mode, RecoveryOutcome
from apps.recovery.models import DailyEffect, Decision, RecoveryRule, RecoveryRuleVersion

#: Days whose decisions the page of a rule counts.
DAYS = 14


@dataclass(frozen=True)
class RuleRow:
    """A rule in the list, with the figures of its current version."""

    rule: RecoveryRule
    definition: Definition
    effect: RuleEffect
    last_at: datetime | None
    #: How many of the jobs on which it acts are not retried yet.
    waiting: int
    last_day: RuleEffect
    #: How many jobs, of all its versions, wait for their owners.
    waiting_for_owners: int

    @property
    def why_idle(self) -> str:
        """Why its current version has retried no job; empty if it has."""
        return explain_idleness(self.rule, self.effect)

    @property
    def waits_for_first_match(self) -> bool:
        """Whether it is active and no failed job has matched its current version."""
        return bool(self.why_idle) and self.rule.mode == Mode.ACTIVE and not self.effect.matched

    @property
    def not_retried(self) -> list[NotRetried]:
        """How many matching jobs it did not retry, by reason."""
        return list_not_retried(self.effect)


@dataclass(frozen=True)
class VersionRow:
    """A version of a rule with its figures."""

    version: RecoveryRuleVersion
    effect: RuleEffect


@dataclass(frozen=True)
class DayRow:
    """The number of decisions of a day (UTC), by the part of the bar that counts them."""

    day: date
    completed: int
    failed: int
    control: int
    people: int
    other: int


def rule_rows(
    user: User, last_day: Mapping[int | None, RuleEffect], for_owners: Mapping[int, int]
) -> list[RuleRow]:
    """Return the rules that a user sees, with the figures of jobs that the user sees.

    `last_day` has the figures of `effects_of_last_day`, `for_owners` the numbers of jobs that wait
    for their owners, both by primary key of the rule.
    """
    rules = list(visible_rules(user))
    totals = DailyEffect.objects.visible_to(user).filter(_current_versions(rules))
    effects = effects_by_rule(totals)
    last_at = _last_retries(effects, user)
    planned = count_planned_retries(rules, user)
    rows = []
    for rule in rules:
        row = RuleRow(
            rule,
            definition_of(rule),
            effects.get(rule.pk, RuleEffect()),
            last_at.get(rule.pk),
            planned.get(rule.pk, 0),
            last_day.get(rule.pk, RuleEffect()),
            for_owners.get(rule.pk, 0),
        )
        rows.append(row)
    return rows


def _current_versions(rules: Iterable[RecoveryRule]) -> Q:
    """Return the condition on decisions, or their totals, of the current version of each rule."""
    condition = Q(pk__in=[])
    for rule in rules:
        condition |= Q(rule=rule, version=rule.version)
    return condition


def count_planned_retries(rules: Iterable[RecoveryRule], user: User) -> dict[int, int]:
    """Return how many retries of the current version of each rule have not started, by its key."""
    decisions = Decision.objects.visible_to(user).left_to_rules()
    decisions = decisions.filter(_current_versions(rules), arm=Arm.ACTED)
    return dict(decisions.order_by().values_list("rule").annotate(Count("pk")))


def _last_retries(effects: Mapping[int, RuleEffect], user: User) -> dict[int, datetime]:
    """Return when each rule last decided to retry a job that the user sees, by primary key.

    `effects` has the figures of the current versions of the rules.
    """
    # Reads the decisions of one day of each rule, not all.
    on_last_day = Q(pk__in=[])
    for rule, effect in effects.items():
        if effect.last_retry_day is not None:
            midnight = datetime.combine(effect.last_retry_day, time(), tzinfo=UTC)
            on_last_day |= Q(rule=rule, decided_at__gte=midnight)
    last = Decision.objects.visible_to(user).filter(on_last_day, arm__in=RETRIED_ARMS)
    return dict(last.order_by().values_list("rule").annotate(Max("decided_at")))


@dataclass(frozen=True)
class CoreSeconds:
    """Core-seconds that the current versions of rules `used` and `saved`.

    `ended` is the number of retries that have ended, `measured` that of the rules whose savings are
    known.
    """

    ended: int
    used: int
    saved: float
    measured: int


def sum_core_seconds(rows: Sequence[RuleRow]) -> CoreSeconds:
    """Return the core-seconds that the current versions of rules used and saved."""
    saved = []
    for row in rows:
        if row.effect.saved_core_seconds is not None:
            saved.append(row.effect.saved_core_seconds)
    ended = sum(row.effect.retried.ended for row in rows)
    used = sum(row.effect.used_core_seconds for row in rows)
    return CoreSeconds(ended, used, sum(saved), len(saved))


def effects_of_last_day(
    user: User, *, at: datetime, rule: RecoveryRule | None = None
) -> dict[int | None, RuleEffect]:
    """Return the figures of the decisions of the last 24 hours, by primary key of the rule.

    None is the key of decisions without a rule. All versions count, and all jobs that the user
    sees. With `rule`, only this rule counts.
    """
    decisions = Decision.objects.visible_to(user).filter(decided_on_last_day(at))
    if rule is not None:
        decisions = decisions.filter(rule=rule)
    counts = decisions.order_by().values_list("rule", "arm", "outcome").annotate(Count("pk"))
    effects: dict[int | None, RuleEffect] = {}
    for rule_pk, arm, outcome, jobs in counts:
        effect = effects.setdefault(rule_pk, RuleEffect())
        effect.arms.setdefault(arm, ArmFigures()).add_jobs(outcome, jobs)
    return effects


def count_last_day(effects: Mapping[int | None, RuleEffect]) -> dict[str, int]:
    """Return how many jobs were decided about in the last 24 hours: in all, by arms, and others."""
    decided = sum(effect.matched for effect in effects.values())
    retried = sum(effect.retried.jobs for effect in effects.values())
    not_retriable = sum(effect.arm(Arm.OWNER).jobs for effect in effects.values())
    without_rule = sum(effect.arm(Arm.NO_RULE).jobs for effect in effects.values())
    return {
        "decided": decided,
        "retried": retried,
        "not_retriable": not_retriable,
        "without_rule": without_rule,
        "others": decided - retried - not_retriable - without_rule,
    }


def version_rows(rule: RecoveryRule, user: User) -> list[VersionRow]:
    """Return the versions of a rule, newest first, with the figures of jobs that the user sees."""
    totals = DailyEffect.objects.visible_to(user).filter(rule=rule)
    effects = effects_by_version(totals)
    rows = []
    for version in rule.versions.all():
        rows.append(VersionRow(version, effects.get(version.number, RuleEffect())))
    return rows


def day_rows(rule: RecoveryRule, user: User, *, today: date) -> list[DayRow]:
    """Return the days of the last two weeks with decisions of a rule, the newest first."""
    since = today - timedelta(days=DAYS - 1)
    totals = DailyEffect.objects.visible_to(user).filter(rule=rule, day__gte=since)
    counts: dict[tuple[date, str], int] = {}
    sums = totals.order_by().values_list("day", "arm", "outcome").annotate(Sum("jobs"))
    for day, arm, outcome, jobs in sums:
        part = _part(Arm(arm), RecoveryOutcome(outcome))
        counts[day, part] = counts.get((day, part), 0) + jobs
    rows = []
    for day in sorted({day for day, _ in counts}, reverse=True):
        parts = {}
        for part in ("completed", "failed", "control", "people", "other"):
            parts[part] = counts.get((day, part), 0)
        rows.append(DayRow(day, **parts))
    return rows


def _part(arm: Arm, outcome: RecoveryOutcome) -> str:
    """Return the part of a bar that counts decisions of an arm with an outcome."""
    if arm == Arm.CONTROL:
        return "control"
    if arm in (Arm.QUESTION, Arm.BUDGET, Arm.OWNER):
        return "people"
    if arm in RETRIED_ARMS and outcome == RecoveryOutcome.COMPLETED:
        return "completed"
    if arm in RETRIED_ARMS and outcome == RecoveryOutcome.FAILED:
        return "failed"
    return "other"
