"""The signatures that a request needs: which exist, who can give the missing ones, what changed.

Reads only. A slot without a group stands for any approver; it is used if no rule names groups.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from apps.accounts.enums import OPG_ROLES, Role
from apps.accounts.models import Experiment, User
from apps.accounts.permissions import scope_of
from apps.production.domain.content.model import RequestContent, list_changes
from apps.production.domain.content.serialization import read_plain
from apps.production.domain.content.stages import content_of
from apps.production.enums import SIGNED, RequestState
from apps.production.models import (
    REMIND_AFTER_DAYS,
    ApprovalGroup,
    ApprovalRule,
    Delegation,
    Request,
    Signature,
    WorkflowType,
)

#: How many people per group a page lists at most.
MAX_PEOPLE = 12
#: How many changes since a signature a page shows at most.
MAX_CHANGES = 200


@dataclass(frozen=True)
class ApprovalFacts:
    """The facts about a request that decide who must sign it."""

    experiment_id: int
    type_id: int
    requesters: frozenset[int]


@dataclass(frozen=True)
class Right:
    """The right of a user to sign for a group, possibly on behalf of `for_user`.

    Without a group, the user signs as an approver.
    """

    user: User
    group: ApprovalGroup | None
    for_user: User | None = None

    def __str__(self) -> str:
        if self.for_user:
            return f"{self.user} for {self.for_user}"
        return str(self.user)


class ApprovalRules:
    """The enabled approval rules, read once for any number of requests."""

    def __init__(self) -> None:
        self._rules = list(
            ApprovalRule.objects.filter(enabled=True).prefetch_related("groups__members")
        )

    def groups_for(self, facts: ApprovalFacts) -> list[ApprovalGroup | None]:
        """Return the groups that must sign, sorted by name; [None] if one approver is enough."""
        groups = {}
        for rule in self._matching(facts.experiment_id, facts.type_id):
            for group in rule.groups.all():
                if group.experiment_id in (None, facts.experiment_id):
                    groups[group.pk] = group
        return [*sorted(groups.values(), key=lambda group: group.name)] or [None]

    def remind_after(self, experiment_id: int | None, type_id: int | None = None) -> int:
        """Return the number of days until a reminder is sent, 0 for never.

        It is the smallest number of all matching rules. Without a type, as for a hold, only rules
        for all types match.
        """
        days = [rule.remind_after_days for rule in self._matching(experiment_id, type_id)]
        if not days:
            return REMIND_AFTER_DAYS
        return min(filter(None, days), default=0)

    def _matching(self, experiment_id: int | None, type_id: int | None) -> list[ApprovalRule]:
        matching = []
        for rule in self._rules:
            if rule.workflow_id in (None, type_id) and rule.experiment_id in (None, experiment_id):
                matching.append(rule)
        return matching


class Signer:
    """A user, and the delegations to this user that are in force."""

    def __init__(self, user: User | None, delegations: Iterable[Delegation]) -> None:
        self.user = user
        self._delegations = list(delegations)

    @property
    def people(self) -> frozenset[int]:
        """The primary keys of this user and of the users who delegated to them."""
        own = {self.user.pk} if self.user else set()
        return frozenset(own | {delegation.from_user_id for delegation in self._delegations})

    def rights(self, group: ApprovalGroup | None, facts: ApprovalFacts) -> list[Right]:
        """Return the user's own right to sign for a group, else the rights by delegation.

        Nobody signs their own request.
        """
        user = self.user
        if not user or user.pk in facts.requesters or not scope_of(user).sees(facts.experiment_id):
            return []
        if is_in_group(user, group, facts):
            return [Right(user, group)]
        rights = []
        for delegation in self._delegations:
            if delegation.from_user_id not in facts.requesters and _covers(
                delegation, group, facts
            ):
                rights.append(Right(user, group, delegation.from_user))
        return rights

    def right(self, group: ApprovalGroup | None, facts: ApprovalFacts) -> Right | None:
        return next(iter(self.rights(group, facts)), None)


def signer_at(user: User | None, at: datetime | None) -> Signer:
    """Return a user with the delegations in force at a time. Without a time, none count."""
    if at is None or not scope_of(user).roles:
        return Signer(user, ())
    return Signer(user, delegations_in_force(at, to_user=user))


def delegations_in_force(at: datetime, **matching: Any) -> QuerySet[Delegation]:
    """Return the delegations in force at a time, with the roles of the delegators.

    The number of queries is fixed.
    """
    delegations = Delegation.objects.filter(
        revoked_at=None, from_at__lte=at, until_at__gt=at, **matching
    )
    delegations = delegations.select_related("from_user", "group").order_by("pk")
    return delegations.prefetch_related("from_user__memberships")


def _covers(delegation: Delegation, group: ApprovalGroup | None, facts: ApprovalFacts) -> bool:
    if delegation.group_id is not None and (group is None or group.pk != delegation.group_id):
        return False
    if delegation.role and group is not None:
        return False
    delegator = delegation.from_user
    return scope_of(delegator).sees(facts.experiment_id) and is_in_group(delegator, group, facts)


def is_in_group(user: User, group: ApprovalGroup | None, facts: ApprovalFacts) -> bool:
    """Whether a user belongs to a group for this request.

    Without a group, whether the user is an approver.
    """
    scope = scope_of(user)
    if group is None:
        return scope.has(Role.APPROVER, facts.experiment_id)
    if group.role and scope.has(Role(group.role), facts.experiment_id):
        return True
    return bool(scope.roles) and any(member.pk == user.pk for member in group.members.all())


@dataclass(frozen=True)
class SignatureSlot:
    """A required signature: the signature, or who can give it.

    `changes` are the changes since `earlier`, a withdrawn signature.
    """

    group: ApprovalGroup | None
    signature: Signature | None
    mine: Right | None = None
    people: tuple[str, ...] = ()
    earlier: Signature | None = None
    changes: tuple[Mapping[str, str], ...] = ()

    @property
    def name(self) -> str:
        return self.group.name if self.group else "Approver"


def approval_facts(request: Request) -> ApprovalFacts:
    """Return the facts of a request that the rules need."""
    return ApprovalFacts(
        experiment_id=request.experiment_id,
        type_id=request.workflow.type_id,
        requesters=request.requester_ids,
    )


def slots_of(
    request: Request, user: User | None = None, at: datetime | None = None
) -> list[SignatureSlot]:
    """Return the required signatures of a request, with this user's right to give each."""
    live = Signature.objects.filter(request=request, withdrawn_at=None).select_related(
        "by", "for_user"
    )
    return slots_for(
        approval_facts(request), rules=ApprovalRules(), signatures=live, signer=signer_at(user, at)
    )


def slots_for(
    facts: ApprovalFacts, *, rules: ApprovalRules, signatures: Iterable[Signature], signer: Signer
) -> list[SignatureSlot]:
    """Return the required signatures under these rules, with the signer's right to give each."""
    signature_by_group = {signature.group_id: signature for signature in signatures}
    slots = []
    for group in rules.groups_for(facts):
        signature = signature_by_group.get(group.pk if group else None)
        slots.append(SignatureSlot(group, signature, signer.right(group, facts)))
    return slots


def slots_to_sign(slots: Iterable[SignatureSlot]) -> list[SignatureSlot]:
    """Return the slots whose signature is missing; all if none is, for the final approval."""
    slots = list(slots)
    return [slot for slot in slots if slot.signature is None] or slots


def signers_of(
    content: RequestContent, *, experiment: Experiment, requesters: Iterable[int], at: datetime
) -> list[tuple[str, list[str]]]:
    """Return each group that must sign this content after submission, and who can sign for it."""
    type_id = (
        WorkflowType.objects.filter(key=content.workflow.key).values_list("pk", flat=True).first()
        or 0
    )
    facts = ApprovalFacts(experiment.pk, type_id, frozenset(requesters))
    groups = ApprovalRules().groups_for(facts)
    rights = possible_signers(groups, facts, at)
    signers = []
    for group in groups:
        name = group.name if group else "Approver"
        signers.append((name, [str(right) for right in rights[group][:MAX_PEOPLE]]))
    return signers


def may_sign(request: Request, user: User, at: datetime | None) -> bool:
    """Whether a user may sign for one of the required groups, even if it has signed."""
    facts = approval_facts(request)
    signer = signer_at(user, at)
    return any(signer.right(group, facts) for group in ApprovalRules().groups_for(facts))


def possible_signers(
    groups: Iterable[ApprovalGroup | None], facts: ApprovalFacts, at: datetime
) -> dict[ApprovalGroup | None, list[Right]]:
    """Return who can sign for each group.

    These are members and their delegates who can see the request and did not write it.
    """
    seers = Q(memberships__experiment=None, memberships__role__in=OPG_ROLES)
    seers |= Q(memberships__experiment=facts.experiment_id)
    users = User.objects.filter(seers, is_active=True).distinct().prefetch_related("memberships")
    delegations: dict[int, list[Delegation]] = defaultdict(list)
    for delegation in delegations_in_force(at):
        delegations[delegation.to_user_id].append(delegation)
    signers = [Signer(user, delegations[user.pk]) for user in users]

    rights_by_group: dict[ApprovalGroup | None, list[Right]] = {}
    for group in groups:
        rights: list[Right] = []
        for signer in signers:
            rights += signer.rights(group, facts)
        rights_by_group[group] = sorted(rights, key=str)
    return rights_by_group


@dataclass(frozen=True)
class Approval:
    """The signatures of a request, and those that the user can give or withdraw."""

    slots: list[SignatureSlot]
    may_withdraw: frozenset[int] = frozenset()

    @property
    def missing(self) -> list[SignatureSlot]:
        return [slot for slot in self.slots if slot.signature is None]

    @property
    def mine(self) -> list[SignatureSlot]:
        return [slot for slot in self.missing if slot.mine]


def approval_of(
    request: Request, user: User, at: datetime, *, slots: Iterable[SignatureSlot] | None = None
) -> Approval:
    """Return the signatures that a request requires, or with which it was approved.

    Pass `slots`, the result of `slots_of` for this user, to save its queries.
    """
    signatures = list(
        Signature.objects.filter(request=request)
        .select_related("by", "for_user", "group")
        .order_by("pk")
    )
    if request.state in SIGNED:
        signed = []
        for signature in signatures:
            if signature.withdrawn_at is None:
                signed.append(SignatureSlot(signature.group, signature))
        return Approval(signed)
    if request.state in {
        RequestState.DRAFT,
        RequestState.CANCELLED,
        RequestState.SUPERSEDED,
        RequestState.REJECTED,
    }:
        return Approval([])

    slots = slots_of(request, user, at) if slots is None else list(slots)
    people = possible_signers([slot.group for slot in slots], approval_facts(request), at)
    slots = [_with_people_and_changes(request, slot, people, signatures) for slot in slots]
    if request.state != RequestState.AWAITING_APPROVAL:
        return Approval(slots)

    current = [slot.signature for slot in slots if slot.signature]
    own = []
    for signature in current:
        if user.pk in {signature.by_id, signature.for_user_id}:
            own.append(signature.pk)
    return Approval(slots, frozenset(own))


def _with_people_and_changes(
    request: Request,
    slot: SignatureSlot,
    people: Mapping[ApprovalGroup | None, list[Right]],
    signatures: list[Signature],
) -> SignatureSlot:
    names = [str(person) for person in people.get(slot.group, [])]
    if len(names) > MAX_PEOPLE:
        more = [f"{len(names) - MAX_PEOPLE} more"]
    else:
        more = []
    slot = replace(slot, people=(*names[:MAX_PEOPLE], *more))

    # Without an earlier signature of this group, compare with the newest withdrawn one of any
    # group.
    withdrawn = [
        signature for signature in reversed(signatures) if signature.withdrawn_at is not None
    ]
    of_group = [signature for signature in withdrawn if signature.group == slot.group]
    earlier = next(iter(of_group or withdrawn), None)
    if slot.signature is not None or earlier is None:
        return slot

    now = content_of(request)
    changed = list_changes(read_plain(earlier.content, now.workflow)[0], now)
    return replace(slot, earlier=earlier, changes=tuple(changed[:MAX_CHANGES]))
