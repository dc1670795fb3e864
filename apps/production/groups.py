"""Retiring a group of approval: nobody signs for it any more, what was signed for it stays."""

from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from apps.core.errors import InvalidFields, InvalidTransition
from apps.core.services import publish
from apps.production.approval_models import ApprovalGroup, ApprovalRule, Delegation
from apps.production.priority.level import check_reason


@dataclass(frozen=True)
class Retirement:
    """What comes of retiring a group: rules that ask for others only, or for none, and hand-overs that end."""

    rules: tuple[str, ...]
    emptied: tuple[str, ...]
    delegations: tuple[str, ...]

    @property
    def words(self) -> str:
        told = []
        if self.rules:
            told.append(f"rules that ask for its signature no more: {'; '.join(self.rules)}")
        if self.emptied:
            told.append(f"of these ask for no group then, so that one approver is enough: {'; '.join(self.emptied)}")
        if self.delegations:
            told.append(f"hand-overs that end: {'; '.join(self.delegations)}")
        return f"nobody signs for it any more; {', '.join(told)}." if told else "nobody signs for it any more."


def retirement_of(group: ApprovalGroup, at: datetime) -> Retirement:
    """Return what would come of retiring a group."""
    rules = list(
        ApprovalRule.objects.filter(groups=group).prefetch_related("groups").select_related("workflow", "experiment")
    )
    handed = Delegation.objects.filter(group=group, revoked_at=None, until_at__gt=at)
    return Retirement(
        rules=tuple(map(str, rules)),
        emptied=tuple(str(rule) for rule in rules if len(rule.groups.all()) == 1),
        delegations=tuple(map(str, handed.select_related("from_user", "to_user"))),
    )


@transaction.atomic
def retire_group(*, group: ApprovalGroup, by: object, at: datetime, reason: str) -> Retirement:
    """Take a group out of all rules, empty it, and end what was handed over of it; its signatures stay.

    Raises `InvalidFields` for a missing reason, `InvalidTransition` where it is retired already.
    """
    if problems := check_reason(reason):
        raise InvalidFields(problems)
    current = ApprovalGroup.objects.select_for_update().get(pk=group.pk)
    if current.retired_at:
        raise InvalidTransition(f"{current} was retired already.")
    found = retirement_of(current, at)
    for rule in ApprovalRule.objects.filter(groups=current):
        rule.groups.remove(current)
    for one in Delegation.objects.filter(group=current, revoked_at=None, until_at__gt=at).select_related("to_user"):
        Delegation.objects.filter(pk=one.pk).update(revoked_at=at, revoked_by=str(by)[:150])
        publish(kind="delegation.revoked", target=one, by=by, at=at, old=str(one.to_user), reason=reason.strip())
    current.members.clear()
    current.role, current.retired_at = "", at
    current.save(update_fields=["role", "retired_at"])
    data = {"rules": list(found.rules), "emptied": list(found.emptied), "delegations": list(found.delegations)}
    publish(kind="approval_group.retired", target=current, by=by, at=at, reason=reason.strip(), data=data)
    return found
