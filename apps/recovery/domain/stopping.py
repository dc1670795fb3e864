"""Rules that stop themselves: back to passive once it is clear that they do not help."""

from datetime import datetime

from django.db import transaction

from apps.core.domain.events import publish
from apps.production.enums import PORTAL
from apps.recovery.domain.definition import read_definition
from apps.recovery.domain.effect import ArmFigures, effects_by_version
from apps.recovery.enums import Mode
from apps.recovery.models import DailyEffect, RecoveryRule

#: A rule is not stopped before so many of its retries have ended.
LEAST_ENDED = 20


def does_not_help(figures: ArmFigures, *, least_success_percent: float) -> bool:
    """Return whether the upper 95 % bound of the success lies below the threshold."""
    if figures.ended < LEAST_ENDED:
        return False
    _, upper = figures.interval
    return upper * 100 < least_success_percent


@transaction.atomic
def stop_useless_rules(*, at: datetime) -> list[RecoveryRule]:
    """Make active rules passive whose current version does not help; return them."""
    stopped = []
    active = RecoveryRule.objects.select_for_update(of=("self",)).filter(mode=Mode.ACTIVE)
    for rule in active:
        totals = DailyEffect.objects.filter(rule=rule, version=rule.version)
        effect = effects_by_version(totals).get(rule.version)
        limits = read_definition(rule.definition).limits
        if effect is None or not does_not_help(
            effect.acted, least_success_percent=limits.least_success_percent
        ):
            continue
        figures = effect.acted
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
