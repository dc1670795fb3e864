"""What the pages of recovery rules show: figures by rule, by version and by day."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from django.db.models import Count, Max, OuterRef, Q, QuerySet, Subquery, Sum

from apps.accounts.models import User
from apps.production.domain.outlook import Obstacle
from apps.recovery.domain.decisions.owner_questions import owner_questions_for
from apps.recovery.domain.decisions.questions import questions_for
from apps.recovery.domain.figures.effect import (
    LEAST_CONTROLS,
    ArmFigures,
    Effect,
    add_up,
    effects_by_rule,
    effects_by_version,
)
from apps.recovery.domain.rules.definition import Definition
from apps.recovery.domain.rules.lifecycle import definition_of, visible_rules
from apps.recovery.enums import RETRIED_ARMS, Arm, Mode, RecoveryOutcome
from apps.recovery.models import DailyEffect, Decision, RecoveryRule, RecoveryRuleVersion
from apps.submission.domain.retries.batches import visible_batches
from apps.submission.domain.retries.obstacles import obstacles_by_batch
from apps.submission.enums import IN_BATCH, BatchState
from apps.submission.models import RetryJob

#: The decisions that a page of rules sums up first.
LAST_DAY = timedelta(hours=24)
#: The value of a filter for all jobs that a rule retries, with its action or without.
RETRIED = "retried"
#: The values for open questions to owners and to other people.
WAITS_FOR_OWNER = "waits-for-owner"
WAITS_FOR_PERSON = "waits-for-person"
#: Days whose decisions the page of a rule counts.
DAYS = 14
#: Decisions shown on the page of a rule.
LATEST = 10
#: The newest batches of rules of which the page says what they wait for.
MOST_BATCHES = 25
#: What became of jobs that a rule did not retry, after their number.
_NOT_RETRIED = {
    Arm.PASSIVE: "on which it would have acted",
    Arm.QUESTION: "beyond a bound",
    Arm.BUDGET: "over its budget",
    Arm.OWNER: "that the portal cannot retry",
    Arm.PERSON: "left to a person",
    Arm.HANDLED: "already retried",
}
#: The columns of a list of decisions: 50 rows take 8 ms to read, and 18 ms with all columns.
_LISTED = (
    "arm",
    "outcome",
    "why",
    "changes",
    "attempt",
    "decided_at",
    "act_at",
    "batch__id",
    "rule__name",
    "job__job_id",
    "job__request_key",
    "job__stage",
    "job__cluster__name",
    "job__verdict__later_attempt",
)


@dataclass(frozen=True)
class NotRetried:
    """How many jobs a rule matched and did not retry, for one reason; `arm` filters lists."""

    arm: Arm
    jobs: int
    text: str


@dataclass(frozen=True)
class RuleRow:
    """A rule in the list, with the figures of its current version."""

    rule: RecoveryRule
    definition: Definition
    effect: Effect
    last_at: datetime | None
    #: How many of the jobs on which it acts are not retried yet.
    waiting: int
    last_day: Effect
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
        """The matching jobs that it did not retry, by what became of them."""
        return count_not_retried(self.effect)


@dataclass(frozen=True)
class VersionRow:
    """A version of a rule with its figures."""

    version: RecoveryRuleVersion
    effect: Effect


@dataclass(frozen=True)
class DayRow:
    """The decisions of a day (UTC) by what became of them."""

    day: date
    completed: int
    failed: int
    control: int
    people: int
    other: int


def rule_rows(
    user: User, last_day: Mapping[int | None, Effect], for_owners: Mapping[int, int]
) -> list[RuleRow]:
    """Return the rules that a user sees, with the figures of jobs that the user sees.

    `last_day` are the figures that `effects_of_last_day` returns, `for_owners` the numbers of
    jobs that wait for their owners, by primary key of the rule.
    """
    rules = list(visible_rules(user))
    current = Q(pk__in=[])
    for rule in rules:
        current |= Q(rule=rule, version=rule.version)
    totals = DailyEffect.objects.visible_to(user).filter(current)
    effects = effects_by_rule(totals)
    last_at = _last_retries(effects, user)
    waiting = _waiting_jobs(current, user)
    rows = []
    for rule in rules:
        row = RuleRow(
            rule,
            definition_of(rule),
            effects.get(rule.pk, Effect()),
            last_at.get(rule.pk),
            waiting.get(rule.pk, 0),
            last_day.get(rule.pk, Effect()),
            for_owners.get(rule.pk, 0),
        )
        rows.append(row)
    return rows


def effects_of_last_day(
    user: User, *, at: datetime, rule: RecoveryRule | None = None
) -> dict[int | None, Effect]:
    """Return the figures of the decisions of 24 hours, by primary key of the rule; None: no rule.

    They are those of all versions, about jobs that the user sees. With `rule`, only of this rule.
    """
    decisions = Decision.objects.visible_to(user).filter(_since_last_day(at))
    if rule is not None:
        decisions = decisions.filter(rule=rule)
    counts = decisions.order_by().values_list("rule", "arm", "outcome").annotate(Count("pk"))
    effects: dict[int | None, Effect] = {}
    for rule_pk, arm, outcome, jobs in counts:
        effect = effects.setdefault(rule_pk, Effect())
        effect.arms.setdefault(arm, ArmFigures()).add_jobs(outcome, jobs)
    return effects


def _since_last_day(at: datetime) -> Q:
    return Q(decided_at__gt=at - LAST_DAY)


def explain_idleness(rule: RecoveryRule, effect: Effect) -> str:
    """Return why the current version of a rule has retried no job; empty if it has.

    `effect` is that of the current version.
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


def count_not_retried(effect: Effect) -> list[NotRetried]:
    """Return the jobs that a rule did not retry, by what became of them."""
    parts = []
    for arm, text in _NOT_RETRIED.items():
        jobs = effect.arm(arm).jobs
        if jobs:
            parts.append(NotRetried(arm, jobs, text))
    return parts


def _describe_not_retried(effect: Effect) -> str:
    parts = [f"{_count_jobs(part.jobs)} {part.text}" for part in count_not_retried(effect)]
    return ", ".join(parts)


def _count_jobs(jobs: int) -> str:
    return f"{jobs:,} job{'' if jobs == 1 else 's'}"


def describe_last_day(effects: Mapping[int | None, Effect], *, active: int) -> list[str]:
    """Return what rules did in the last 24 hours, the main sentence first.

    `effects` are the figures that `effects_of_last_day` returns; so many rules are `active`.
    """
    retried = add_up(effect.retried for effect in effects.values())
    decided = sum(effect.matched for effect in effects.values())
    if retried.jobs:
        retries = f"Rules decided to retry {_count_jobs(retried.jobs)} in the last 24 hours."
        return [retries, _describe_outcomes(retried)]
    if not active:
        return ["No rule is active, so failed jobs are left to people."]
    if not decided:
        return ["Rules had nothing to do in the last 24 hours.", "No failed job came to them."]
    return ["Rules retried no job in the last 24 hours.", ""]


def describe_rule_of_last_day(rule: RecoveryRule, effect: Effect, current: Effect) -> list[str]:
    """Return what a rule did in the last 24 hours, or why it has never acted.

    `effect` is that of the last 24 hours, `current` that of the current version.
    """
    retried = effect.retried
    if retried.jobs:
        retries = f"It decided to retry {_count_jobs(retried.jobs)} in the last 24 hours."
        return [retries, _describe_outcomes(retried)]
    if why := explain_idleness(rule, current):
        return [why]
    if not definition_of(rule).retries:
        return [f"Jobs that it matched in the last 24 hours: {effect.matched:,}."]
    sentences = ["It retried no job in the last 24 hours."]
    if effect.matched:
        sentences.append(f"{_describe_not_retried(effect)}.")
    return sentences


def count_last_day(effects: Mapping[int | None, Effect]) -> dict[str, int]:
    """Return how many jobs were decided about in the last 24 hours, in all and by some arms."""
    return {
        "decided": sum(effect.matched for effect in effects.values()),
        "retried": sum(effect.retried.jobs for effect in effects.values()),
        "without_rule": sum(effect.arm(Arm.NO_RULE).jobs for effect in effects.values()),
    }


@dataclass(frozen=True)
class WaitingBatches:
    """How many batches of retries by rules wait, and what they wait for, the newest first."""

    batches: int
    obstacles: list[Obstacle]


def find_waiting_batches(user: User, at: datetime) -> WaitingBatches:
    """Return which of the newest batches of rules wait for a service or an announcement."""
    of_rules = Decision.objects.filter(batch__isnull=False).values("batch")
    releasing = visible_batches(user).filter(state=BatchState.RELEASING, pk__in=of_rules)
    newest = list(releasing.order_by("-pk")[:MOST_BATCHES])
    waits = obstacles_by_batch(newest, user, at)
    obstacles: dict[Obstacle, None] = {}
    for batch_obstacles in waits.values():
        obstacles.update(dict.fromkeys(batch_obstacles))
    return WaitingBatches(len(waits), list(obstacles))


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


@dataclass(frozen=True)
class CoreSeconds:
    """What current versions of rules cost and saved.

    `ended` retries have ended; of `measured` rules it is known what they saved.
    """

    ended: int
    used: int
    saved: float
    measured: int


def sum_core_seconds(rows: Sequence[RuleRow]) -> CoreSeconds:
    """Return what the current versions of rules cost and saved."""
    saved = []
    for row in rows:
        if row.effect.saved_core_seconds is not None:
            saved.append(row.effect.saved_core_seconds)
    ended = sum(row.effect.retried.ended for row in rows)
    used = sum(row.effect.used_core_seconds for row in rows)
    return CoreSeconds(ended, used, sum(saved), len(saved))


def _waiting_jobs(current: Q, user: User) -> dict[int, int]:
    """Return how many jobs wait for their retry by the current version of each rule."""
    decisions = Decision.objects.visible_to(user).left_to_rules()
    decisions = decisions.filter(current, arm=Arm.ACTED)
    return dict(decisions.order_by().values_list("rule").annotate(Count("pk")))


def describe_effect(rule: RecoveryRule, effect: Effect, user: User) -> list[str]:
    """Return sentences about what became of a rule's retries, and whether it helps.

    `effect` is that of the current version.
    """
    current = Q(rule=rule, version=rule.version)
    planned = _waiting_jobs(current, user).get(rule.pk, 0)
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


def _describe_comparison(effect: Effect, definition: Definition) -> str:
    if not definition.limits.control_percent:
        return "Whether it helps is not known: it has no control group."
    difference = effect.difference
    if difference is None:
        return (
            f"Whether it helps is not known yet: of {_count_jobs(effect.control.jobs)} retried "
            f"unchanged, as the control group, {effect.control.ended} finished. "
            f"{LEAST_CONTROLS} are needed."
        )
    points = abs(round(difference.value * 100))
    if difference.low > 0:
        return f"It helps: of 100 jobs, {points} more complete than after an unchanged retry."
    if difference.high < 0:
        return f"It does harm: of 100 jobs, {points} fewer complete than after an unchanged retry."
    return "It is not clear whether it helps: an unchanged retry does about as well."


def _last_retries(effects: Mapping[int, Effect], user: User) -> dict[int, datetime]:
    """Return when each rule last decided to retry a job that the user sees, by primary key.

    `effects` are those of the current versions of the rules.
    """
    # Reads the decisions of one day of each rule, not all.
    on_last_day = Q(pk__in=[])
    for rule, effect in effects.items():
        if effect.last_retry_day is not None:
            midnight = datetime.combine(effect.last_retry_day, time(), tzinfo=UTC)
            on_last_day |= Q(rule=rule, decided_at__gte=midnight)
    last = Decision.objects.visible_to(user).filter(on_last_day, arm__in=RETRIED_ARMS)
    return dict(last.order_by().values_list("rule").annotate(Max("decided_at")))


def version_rows(rule: RecoveryRule, user: User) -> list[VersionRow]:
    """Return the versions of a rule, newest first, with the figures of jobs that the user sees."""
    totals = DailyEffect.objects.visible_to(user).filter(rule=rule)
    effects = effects_by_version(totals)
    rows = []
    for version in rule.versions.all():
        rows.append(VersionRow(version, effects.get(version.number, Effect())))
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


@dataclass(frozen=True, kw_only=True)
class DecisionFilter:
    """Which decisions of a rule are listed; empty: all."""

    arm: str = ""
    outcome: str = ""
    version: int | None = None
    #: The user name of the jobs' owner.
    owner: str = ""
    #: Only decisions of the 24 hours until then.
    last_day_at: datetime | None = None

    @property
    def is_counted_daily(self) -> bool:
        """Whether daily totals tell how many decisions there are.

        They know neither times nor owners, nor whether a question is still open.
        """
        is_open_question = self.arm in (WAITS_FOR_OWNER, WAITS_FOR_PERSON)
        return self.last_day_at is None and not self.owner and not is_open_question

    @property
    def condition(self) -> Q:
        """The condition on decisions, and on daily totals if these can tell.

        `last_day_at` is not part of it, nor are open questions.
        """
        condition = Q()
        if self.version is not None:
            condition &= Q(version=self.version)
        if self.owner:
            condition &= Q(job__user=self.owner)
        if self.arm == RETRIED:
            condition &= Q(arm__in=RETRIED_ARMS)
        elif self.arm in Arm.values:
            condition &= Q(arm=self.arm)
        if self.outcome:
            condition &= Q(outcome=self.outcome)
        return condition


def decisions_of(
    user: User, shown: DecisionFilter, rule: RecoveryRule | None = None
) -> QuerySet[Decision]:
    """Return the decisions on jobs that the user sees, of one rule or of all, newest first."""
    if shown.arm == WAITS_FOR_OWNER:
        decisions = owner_questions_for(user)
    elif shown.arm == WAITS_FOR_PERSON:
        decisions = questions_for(user)
    else:
        decisions = Decision.objects.visible_to(user).filter(decided_at__isnull=False)
    decisions = decisions.filter(shown.condition)
    if rule is not None:
        decisions = decisions.filter(rule=rule)
    if shown.last_day_at is not None:
        decisions = decisions.filter(_since_last_day(shown.last_day_at))
    return decisions.order_by("-decided_at", "-pk")


def count_decisions(user: User, shown: DecisionFilter, rule: RecoveryRule | None = None) -> int:
    """Return how many decisions `decisions_of` returns, from the daily totals if they can tell."""
    if not shown.is_counted_daily:
        return decisions_of(user, shown, rule).count()
    totals = DailyEffect.objects.visible_to(user).filter(shown.condition)
    if rule is not None:
        totals = totals.filter(rule=rule)
    return totals.aggregate(all_jobs=Sum("jobs"))["all_jobs"] or 0


def with_jobs(decisions: QuerySet[Decision]) -> QuerySet[Decision]:
    """Return decisions with what a list shows of them, and no other columns."""
    current = RetryJob.objects.filter(job=OuterRef("job"), state__in=IN_BATCH).values("batch")
    listed = decisions.select_related("job__cluster", "job__verdict", "rule", "batch").only(
        *_LISTED
    )
    return listed.annotate(current_batch_id=Subquery(current[:1]))
