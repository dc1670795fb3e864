"""Recovery rules and their decisions in the API."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from rest_framework import mixins

from apps.accounts.api import ApiViewSet, command
from apps.accounts.models import Experiment, User
from apps.core.errors import InvalidFields
from apps.recovery.api.serializers import (
    RecoveryDecisionReader,
    RecoveryModeWriter,
    RecoveryRuleReader,
    RecoveryRuleVersionWriter,
    RecoveryRuleWriter,
)
from apps.recovery.domain.rules.lifecycle import change_rule, create_rule, set_mode, visible_rules
from apps.recovery.enums import Mode
from apps.recovery.filters import Decisions, Rules
from apps.recovery.models import Decision, RecoveryRule
from apps.recovery.permissions import may_activate_rule, may_write_any_rule, may_write_rule


def _may_write(user: User, rule: RecoveryRule) -> bool:
    return may_write_rule(user, rule.experiment_id)


def _may_switch(user: User, rule: RecoveryRule) -> bool:
    """Return whether a user may switch a rule in some way; `set_mode` checks which."""
    return may_write_rule(user, rule.experiment_id) or may_activate_rule(user, rule.experiment_id)


class RecoveryRuleViewSet(
    mixins.ListModelMixin, mixins.RetrieveModelMixin, ApiViewSet[RecoveryRule]
):
    """Recovery rules: what is done about failed jobs without a person."""

    serializer_class = RecoveryRuleReader
    filterset_class = Rules
    lookup_value_regex = r"\d{1,18}"

    def get_queryset(self) -> QuerySet[RecoveryRule]:
        return visible_rules(self.request.user)

    @command(
        RecoveryRuleWriter,
        RecoveryRuleReader,
        code=201,
        allowed=lambda user, _: may_write_any_rule(user),
    )
    def create(
        self,
        *,
        name: str,
        experiment: str,
        definition: Mapping[str, Any],
        by: User,
        at: datetime,
        reason: str,
    ) -> RecoveryRule:
        """Write a new rule, which is passive. For approvers, shifters and admins."""
        named = Experiment.objects.filter(key__iexact=experiment).first() if experiment else None
        if experiment and named is None:
            raise InvalidFields({"experiment": [f"Experiment “{experiment}” not found."]})
        return create_rule(
            name=name, experiment=named, definition=definition, by=by, at=at, reason=reason
        )

    @command(RecoveryRuleVersionWriter, RecoveryRuleReader, allowed=_may_write)
    def change(self, rule: RecoveryRule, **fields: Any) -> RecoveryRule:
        """Write the next version of a rule. An active rule becomes passive."""
        return change_rule(rule=rule, **fields)

    @command(RecoveryModeWriter, RecoveryRuleReader, allowed=_may_switch)
    def switch(self, rule: RecoveryRule, *, mode: str, **fields: Any) -> RecoveryRule:
        """Set a rule to off, passive or active. Only approvers can let it act."""
        return set_mode(rule=rule, mode=Mode(mode), **fields)


class RecoveryDecisionViewSet(
    mixins.ListModelMixin, mixins.RetrieveModelMixin, ApiViewSet[Decision]
):
    """What recovery rules decided about failed jobs, newest first."""

    noun = "recovery decision"
    serializer_class = RecoveryDecisionReader
    filterset_class = Decisions
    lookup_value_regex = r"\d{1,18}"

    def get_queryset(self) -> QuerySet[Decision]:
        decisions = Decision.objects.visible_to(self.request.user)
        return decisions.exclude(decided_at=None).select_related("job").order_by("-pk")
