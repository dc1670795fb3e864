"""Delegations: signing on behalf of a user who is away."""

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q, QuerySet

from apps.accounts.enums import Role
from apps.accounts.models import User
from apps.accounts.permissions import scope_of
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, NotAllowed
from apps.production.models import ApprovalGroup, Delegation

LONGEST = timedelta(days=366)
#: Maximum number of active and planned delegations of one user.
MAX_ACTIVE = 20


def own_groups(user: User) -> QuerySet[ApprovalGroup]:
    """Return the groups of this user, by membership or by role."""
    roles = {role for role, _ in scope_of(user).roles}
    return ApprovalGroup.objects.filter(
        Q(members=user) | Q(role__in=roles), retired_at=None
    ).distinct()


def may_delegate(user: User) -> bool:
    """Whether the user can sign anything."""
    scope = scope_of(user)
    return bool(scope.roles) and (scope.has_anywhere(Role.APPROVER) or own_groups(user).exists())


@transaction.atomic
def delegate(
    *,
    by: User,
    to_user: User | None,
    from_at: datetime,
    until_at: datetime,
    at: datetime,
    group: ApprovalGroup | None = None,
    role: str = "",
) -> Delegation:
    """Let a user sign on behalf of `by` for a time.

    The delegation covers a group, signatures as an approver, or everything that `by` may sign.
    Delegations are not transitive, and do not allow signing for a requester or one's own request.
    Raises `NotAllowed` if `by` has nothing to delegate, `InvalidFields`.
    """
    if not may_delegate(by):
        raise NotAllowed(
            "You have nothing to delegate: you are neither an approver nor in an approval group."
        )
    problems = _problems(by, to_user, from_at, until_at, at)
    if group is not None and not own_groups(by).filter(pk=group.pk).exists():
        problems["group"] = ["You are not in this group."]
    if role and not scope_of(by).has_anywhere(Role.APPROVER):
        problems["role"] = ["You are not an approver."]
    # Lock the user, so that the limit holds under concurrent writes.
    User.objects.select_for_update().get(pk=by.pk)
    if (
        Delegation.objects.filter(from_user=by, revoked_at=None, until_at__gt=at).count()
        >= MAX_ACTIVE
    ):
        problems.setdefault("to_user", []).append(
            f"You have {MAX_ACTIVE} delegations. Revoke one first."
        )
    if group is not None and role:
        problems["role"] = ["Choose a group or a role, not both."]
    if problems or to_user is None:
        raise InvalidFields(problems)
    made = Delegation.objects.create(
        from_user=by,
        to_user=to_user,
        group=group,
        role=role,
        from_at=from_at,
        until_at=until_at,
        created_at=at,
    )
    what = group.name if group else role or "everything"
    span = {"from": from_at.isoformat(), "until": until_at.isoformat(), "what": what}
    publish(kind="delegation.made", target=made, by=by, at=at, new=str(to_user), data=span)
    return made


@transaction.atomic
def revoke_delegation(*, delegation: Delegation, by: User, at: datetime) -> Delegation:
    """Revoke a delegation, by either of the two users. Signatures stay. Raises `NotAllowed`."""
    current = Delegation.objects.select_for_update().get(pk=delegation.pk)
    if by.pk not in {current.from_user_id, current.to_user_id}:
        raise NotAllowed("Only the two users of a delegation can revoke it.")
    if current.revoked_at is None:
        end_delegation(delegation=current, by=by, at=at)
    return current


def end_delegation(*, delegation: Delegation, by: User, at: datetime, reason: str = "") -> None:
    """End an active delegation in the caller's transaction. The caller checks permissions."""
    delegation.revoked_at = at
    delegation.revoked_by = str(by)
    delegation.save(update_fields=["revoked_at", "revoked_by"])
    publish(
        kind="delegation.revoked",
        target=delegation,
        by=by,
        at=at,
        old=str(delegation.to_user),
        reason=reason,
    )


def delegations_of(user: User) -> QuerySet[Delegation]:
    own = Delegation.objects.filter(Q(from_user=user) | Q(to_user=user))
    return own.select_related("from_user", "to_user", "group").order_by("-pk")


def _problems(
    by: User, to_user: User | None, from_at: datetime, until_at: datetime, at: datetime
) -> dict[str, list[str]]:
    problems: dict[str, list[str]] = {}
    if to_user is None or not scope_of(to_user).roles:
        problems["to_user"] = ["No user with this name has a role here."]
    elif to_user.pk == by.pk:
        problems["to_user"] = ["Choose another user."]
    if until_at <= from_at:
        problems["until_at"] = ["The end must be later than the start."]
    elif until_at <= at:
        problems["until_at"] = ["The end is in the past. Choose a later time."]
    elif until_at - from_at > LONGEST:
        problems["until_at"] = ["A delegation lasts at most one year. Choose an earlier end."]
    return problems
