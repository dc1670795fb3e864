"""Whether a rule helps: success of its retries beside its control group, with intervals."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from math import sqrt
from typing import Any

from django.db.models import Max, QuerySet, Sum

from apps.jobs.domain.statistics.intervals import wilson_interval
from apps.recovery.enums import RETRIED_ARMS, Arm, RecoveryOutcome
from apps.recovery.models import DailyEffect

#: Finished jobs of the control group from which the difference to it is shown.
LEAST_CONTROLS = 30


@dataclass
class ArmFigures:
    """The jobs of one arm. Cost in core-seconds; `last_day` is the day of the newest decision."""

    jobs: int = 0
    completed: int = 0
    failed: int = 0
    not_retried: int = 0
    failed_core_seconds: int = 0
    wasted_core_seconds: int = 0
    last_day: date | None = None

    def add_jobs(self, outcome: str, jobs: int) -> None:
        """Count jobs with an outcome, without their cost."""
        self.jobs += jobs
        match outcome:
            case RecoveryOutcome.COMPLETED:
                self.completed += jobs
            case RecoveryOutcome.FAILED:
                self.failed += jobs
            case RecoveryOutcome.NOT_RETRIED:
                self.not_retried += jobs

    @property
    def ended(self) -> int:
        """Jobs whose next attempt has ended."""
        return self.completed + self.failed

    @property
    def waiting(self) -> int:
        return self.jobs - self.ended - self.not_retried

    @property
    def success(self) -> float:
        return self.completed / self.ended if self.ended else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % Wilson interval of the share that completed."""
        return wilson_interval(self.completed, self.ended)

    @property
    def low_percent(self) -> int:
        return round(self.interval[0] * 100)

    @property
    def high_percent(self) -> int:
        return round(self.interval[1] * 100)


@dataclass(frozen=True)
class Difference:
    """Success of the action minus success of the control group, with its 95 % interval.

    By Newcombe's method 10 (Statistics in Medicine 17, 1998, 873-890), from the Wilson intervals of
    both shares.
    """

    value: float
    low: float
    high: float

    @property
    def points(self) -> str:
        """The difference in percentage points, with its sign."""
        return _points(self.value)

    @property
    def low_points(self) -> str:
        return _points(self.low)

    @property
    def high_points(self) -> str:
        return _points(self.high)


def _points(share: float) -> str:
    """Return a share as percentage points: `+31`, `−3`, `0`."""
    points = round(share * 100)
    if points == 0:
        return "0"
    return f"{'+' if points > 0 else '−'}{abs(points)}"


@dataclass
class RuleEffect:
    """The figures of a rule, or of one of its versions, by arm."""

    arms: dict[str, ArmFigures] = field(default_factory=dict)

    def arm(self, arm: Arm) -> ArmFigures:
        return self.arms.get(arm, ArmFigures())

    @property
    def matched(self) -> int:
        return sum(figures.jobs for figures in self.arms.values())

    @property
    def acted(self) -> ArmFigures:
        return self.arm(Arm.ACTED)

    @property
    def control(self) -> ArmFigures:
        return self.arm(Arm.CONTROL)

    @property
    def retried(self) -> ArmFigures:
        """Return the numbers of all retried jobs, also of the control group, without their cost."""
        return add_up(self.arm(arm) for arm in RETRIED_ARMS)

    @property
    def last_retry_day(self) -> date | None:
        """The day (UTC) of the newest decision to retry a job."""
        days = []
        for arm in RETRIED_ARMS:
            last_day = self.arm(arm).last_day
            if last_day is not None:
                days.append(last_day)
        return max(days, default=None)

    @property
    def difference(self) -> Difference | None:
        """The difference to the control group; None while too few of it have ended."""
        if self.control.ended < LEAST_CONTROLS or not self.acted.ended:
            return None
        return compare_shares(self.acted, self.control)

    @property
    def used_core_seconds(self) -> int:
        """Core-seconds of the rule's retries that failed again."""
        return self.acted.wasted_core_seconds + self.arm(Arm.ACTED_AGAIN).wasted_core_seconds

    @property
    def saved_core_seconds(self) -> float | None:
        """Core-seconds of attempts that the control's way would have wasted; None: not known."""
        effect = self.difference
        if effect is None or not self.acted.jobs:
            return None
        mean = self.acted.failed_core_seconds / self.acted.jobs
        return max(0.0, effect.value) * self.acted.ended * mean


def add_up(figures: Iterable[ArmFigures]) -> ArmFigures:
    """Return the sums of numbers of jobs, without their cost."""
    sums = ArmFigures()
    for part in figures:
        sums.jobs += part.jobs
        sums.completed += part.completed
        sums.failed += part.failed
        sums.not_retried += part.not_retried
    return sums


def compare_shares(acted: ArmFigures, control: ArmFigures) -> Difference:
    """Return the difference of two shares with its interval."""
    value = acted.success - control.success
    acted_low, acted_high = acted.interval
    control_low, control_high = control.interval
    below = sqrt((acted.success - acted_low) ** 2 + (control_high - control.success) ** 2)
    above = sqrt((acted_high - acted.success) ** 2 + (control.success - control_low) ** 2)
    return Difference(value, max(-1.0, value - below), min(1.0, value + above))


def effects_by_rule(totals: QuerySet[DailyEffect]) -> dict[int, RuleEffect]:
    """Return the figures of daily totals, by primary key of the rule."""
    effects: dict[int, RuleEffect] = {}
    for total in _summed(totals.filter(rule__isnull=False), "rule_id", "arm"):
        _add(effects.setdefault(total["rule_id"], RuleEffect()), total)
    return effects


def effects_by_version(totals: QuerySet[DailyEffect]) -> dict[int, RuleEffect]:
    """Return the figures of the daily totals of one rule, by the number of its version."""
    effects: dict[int, RuleEffect] = {}
    for total in _summed(totals, "version", "arm"):
        _add(effects.setdefault(total["version"], RuleEffect()), total)
    return effects


def figures_by_day(totals: QuerySet[DailyEffect]) -> dict[date, ArmFigures]:
    """Return the figures of daily totals, all arms together, by the day of the decision."""
    figures: dict[date, ArmFigures] = {}
    for total in _summed(totals, "day"):
        _add_to_arm(figures.setdefault(total["day"], ArmFigures()), total)
    return figures


def _summed(totals: QuerySet[DailyEffect], *fields: str) -> Iterable[dict[str, Any]]:
    """Add up daily totals by these fields and outcome; the database does it."""
    rows: QuerySet[DailyEffect, dict[str, Any]] = totals.order_by().values(*fields, "outcome")
    return rows.annotate(
        all_jobs=Sum("jobs"),
        all_failed_core_seconds=Sum("failed_core_seconds"),
        all_retry_core_seconds=Sum("retry_core_seconds"),
        last_day=Max("day"),
    )


def _add(effect: RuleEffect, total: Mapping[str, Any]) -> None:
    _add_to_arm(effect.arms.setdefault(total["arm"], ArmFigures()), total)


def _add_to_arm(figures: ArmFigures, total: Mapping[str, Any]) -> None:
    figures.add_jobs(total["outcome"], total["all_jobs"])
    figures.last_day = max(total["last_day"], figures.last_day or total["last_day"])
    figures.failed_core_seconds += int(total["all_failed_core_seconds"])
    if total["outcome"] == RecoveryOutcome.FAILED:
        figures.wasted_core_seconds += int(total["all_retry_core_seconds"])
