"""Rules that stop themselves: back to passive once it is clear that they do not help."""

from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta

from django.db import transaction

from apps.core.domain.events import publish
from apps.production.enums import PORTAL
from apps.recovery.domain.figures.effect import ArmFigures, figures_by_day
from apps.recovery.domain.rules.definition import read_definition
from apps.recovery.enums import Arm, Mode
from apps.recovery.models import DailyEffect, RecoveryRule

#: Minimum number of finished retries before a rule can be stopped.
LEAST_ENDED = 20
#: Number of days with most failed retries to leave out: retries of one day fail together, such as
#: in a long outage that nobody reported, and say little about the rule.
WORST_DAYS = 2
MOST_DAYS_OF_PATIENCE = timedelta(days=6)


def does_not_help(figures: ArmFigures, *, least_success_percent: float) -> bool:
    """Return whether the upper 95 % bound of the success lies below the threshold."""
    if figures.ended < LEAST_ENDED:
        return False
    _, upper = figures.interval
    return upper * 100 < least_success_percent


def evidence_about(figures_by_day: Mapping[date, ArmFigures], *, today: date) -> ArmFigures:
    """Add up the retries that say whether a rule helps: the retries of all days but the worst ones.

    A rule that acts on few days must not stay active for a week without effect: all its days count
    after `MOST_DAYS_OF_PATIENCE`, unless retries completed on the others.
    """
    days = sorted(figures_by_day.values(), key=lambda figures: figures.failed, reverse=True)
    usual = _sum_of(days[WORST_DAYS:])
    if usual.ended >= LEAST_ENDED or usual.completed or not figures_by_day:
        return usual
    if today - min(figures_by_day) < MOST_DAYS_OF_PATIENCE:
        return usual
    return _sum_of(days)


def _sum_of(days: Iterable[ArmFigures]) -> ArmFigures:
    total = ArmFigures()
    for figures in days:
        total.jobs += figures.jobs
        total.completed += figures.completed
        total.failed += figures.failed
    return total


@transaction.atomic
def stop_useless_rules(*, at: datetime) -> list[RecoveryRule]:
    """Make active rules passive whose current version does not help; return them."""
    stopped = []
    active = RecoveryRule.objects.select_for_update(of=("self",)).filter(mode=Mode.ACTIVE)
    for rule in active:
        totals = DailyEffect.objects.filter(
            rule=rule, version=rule.version, arm__in=[Arm.ACTED, Arm.ACTED_AGAIN]
        )
        figures = evidence_about(figures_by_day(totals), today=at.date())
        limits = read_definition(rule.definition).limits
        if not does_not_help(figures, least_success_percent=limits.least_success_percent):
            continue
        rule.mode = Mode.PASSIVE
        rule.mode_at = at
        rule.mode_by = PORTAL
        rule.mode_reason = (
            f"{figures.completed} of {figures.ended} retries completed; at least "
            f"{limits.least_success_percent:g} % are expected."
        )
        rule.stopped_itself = True
        rule.save()
        publish(
            kind="recovery.stopped",
            target=rule,
            by=PORTAL,
            at=at,
            old=Mode.ACTIVE,
            new=Mode.PASSIVE,
            reason=rule.mode_reason,
            data={"completed": figures.completed, "ended": figures.ended},
        )
        stopped.append(rule)
    return stopped
