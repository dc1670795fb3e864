"""Groups that sign requests, and the rules that ask them to, for tests."""

from apps.accounts.models import User
from apps.production.models import ApprovalGroup, ApprovalRule


def group(name: str, *members: User, **values: object) -> ApprovalGroup:
    """A group of these people, or, with `role`, of all who have it."""
    made = ApprovalGroup.objects.create(name=name, **values)
    made.members.add(*members)
    return made


def rule(*groups: ApprovalGroup, **values: object) -> ApprovalRule:
    """A rule by which these groups sign; it holds for all requests but for what `values` narrow."""
    made = ApprovalRule.objects.create(**values)
    made.groups.add(*groups)
    return made
