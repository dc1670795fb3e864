"""Retire approval groups. Nobody can sign for a retired group; its signatures stay."""

from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet

from apps.accounts.models import User
from apps.core.domain.events import publish
from apps.core.errors import InvalidTransition, NotAllowed
from apps.production.domain.approvals.delegations import end_delegation
from apps.production.domain.reasons import checked_reason
from apps.production.models import ApprovalGroup, ApprovalRule, Delegation
from apps.production.permissions import may_change_groups


@dataclass(frozen=True)
class Retirement:
    """The effects of retiring a group.

    `rules` lose the group, `emptied` are left without any group, and `delegations` end.
    """

    rules: tuple[str, ...]
    emptied: tuple[str, ...]
    delegations: tuple[str, ...]

    @property
    def text(self) -> str:
        effects = ["no one signs for it any more."]
        if self.rules:
            effects.append(f"These rules no longer require its signature: {'; '.join(self.rules)}.")
        if self.emptied:
            effects.append(
                f"One approver is enough for rules left without a group: {'; '.join(self.emptied)}."
            )
        if self.delegations:
            effects.append(f"These delegations end: {'; '.join(self.delegations)}.")
        return " ".join(effects)


def plan_retirement(group: ApprovalGroup, at: datetime) -> Retirement:
    rules = list(
        ApprovalRule.objects.filter(groups=group)
        .prefetch_related("groups")
        .select_related("workflow", "experiment")
    )
    return Retirement(
        rules=tuple(map(str, rules)),
        emptied=tuple(str(rule) for rule in rules if len(rule.groups.all()) == 1),
        delegations=tuple(map(str, _delegations(group, at))),
    )


@transaction.atomic
def retire_group(*, group: ApprovalGroup, by: User, at: datetime, reason: str) -> Retirement:
    """Remove a group from all rules, remove its members, and end its delegations.

    Its signatures stay. Raises `NotAllowed`, `InvalidFields` for a missing reason,
    `InvalidTransition` if it is already retired.
    """
    if not may_change_groups(by):
        raise NotAllowed("You do not have permission to change approval groups.")
    reason = checked_reason(reason)
    current = ApprovalGroup.objects.select_for_update().get(pk=group.pk)
    if current.retired_at:
        raise InvalidTransition(f"{current} is already retired.")

    retirement = plan_retirement(current, at)
    current.approvalrule_set.clear()
    for delegation in _delegations(current, at):
        end_delegation(delegation=delegation, by=by, at=at, reason=reason)
    current.members.clear()
    current.role = ""
    current.retired_at = at
    current.save(update_fields=["role", "retired_at"])

    data = {
        "rules": list(retirement.rules),
        "emptied": list(retirement.emptied),
        "delegations": list(retirement.delegations),
    }
    publish(kind="approval_group.retired", target=current, by=by, at=at, reason=reason, data=data)
    return retirement


def _delegations(group: ApprovalGroup, at: datetime) -> QuerySet[Delegation]:
    active = Delegation.objects.filter(group=group, revoked_at=None, until_at__gt=at)
    return active.select_related("from_user", "to_user")
