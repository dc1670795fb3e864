"""Filters of recovery rules and decisions."""

import django_filters

from apps.core.web.query import AnyOf
from apps.recovery.enums import Arm, Mode, RecoveryOutcome
from apps.recovery.models import Decision, RecoveryRule


class Rules(AnyOf):
    """Filters of the list of rules."""

    mode = django_filters.ChoiceFilter(choices=Mode.choices)

    class Meta:
        model = RecoveryRule
        fields: tuple[str, ...] = ()


class Decisions(AnyOf):
    """Filters of the list of decisions."""

    rule = django_filters.NumberFilter(field_name="rule")
    version = django_filters.NumberFilter(field_name="version")
    arm = django_filters.ChoiceFilter(choices=Arm.choices)
    outcome = django_filters.ChoiceFilter(choices=RecoveryOutcome.choices)

    class Meta:
        model = Decision
        fields: tuple[str, ...] = ()
