"""The signatures a request needs: which are given, who can give the others, what changed since.

Reads only. A slot without a group stands for any approver, if no rule names groups.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import Q

from apps.accounts.enums import OPG_ROLES, Role
from apps.accounts.models import Membership, User
from apps.accounts.permissions import Scope, scope_of
from apps.production.domain.content.model import changes
from apps.production.domain.content.serialization import read_plain
from apps.production.domain.content.stages import content_of
from apps.production.enums import SIGNED, RequestState, Verb
from apps.production.models import REMIND_AFTER_DAYS, ApprovalGroup, ApprovalRule, Delegation, Request, Signature

#: A page names at most this many people per group.
MAX_PEOPLE = 12
#: A page shows at most this many changes since a signature.
MAX_CHANGES = 200


@dataclass(frozen=True)
class ApprovalFacts:
    """The facts of a request that decide who signs it."""

    pk: int
    experiment_id: int
    type_id: int
    requesters: frozenset[int]


@dataclass(frozen=True)
class Right:
    """The right of a user to sign for a group (None: as an approver), possibly on behalf of `for_user`."""

    group: ApprovalGroup | None
    for_user: User | None = None


class Rules:
    """The enabled approval rules, read once for any number of requests."""

    def __init__(self) -> None:
        rules = ApprovalRule.objects.filter(enabled=True).prefetch_related("groups__members")
        self._rules = list(rules)

    def groups_for(self, facts: ApprovalFacts) -> list[ApprovalGroup | None]:
        """Return the groups that must sign, sorted by name; [None] if one approver is enough."""
        groups = {
            group.pk: group
            for rule in self._fitting(facts)
            for group in rule.groups.all()
            if group.experiment_id in (None, facts.experiment_id)
        }
        return [groups[pk] for pk in sorted(groups, key=lambda pk: groups[pk].name)] if groups else [None]

    def remind_after(self, facts: ApprovalFacts) -> int:
        """Return after how many days to send a reminder, the fewest of all matching rules; 0 for never."""
        return _shortest(self._fitting(facts))

    def remind_of_hold_after(self, experiment_id: int | None) -> int:
        """Return the same for a hold of an experiment or of all production, by rules for every type."""
        fitting = (rule for rule in self._rules if rule.workflow_id is None)
        return _shortest([rule for rule in fitting if rule.experiment_id in (None, experiment_id)])

    def _fitting(self, facts: ApprovalFacts) -> list[ApprovalRule]:
        return [
            rule
            for rule in self._rules
            if rule.workflow_id in (None, facts.type_id) and rule.experiment_id in (None, facts.experiment_id)
        ]


def _shortest(rules: Sequence[ApprovalRule]) -> int:
    days = [rule.remind_after_days for rule in rules]
    return min((day for day in days if day), default=0) if days else REMIND_AFTER_DAYS


class Signer:
    """A user with the delegations in force at a time."""

    def __init__(self, user: User | None, at: datetime | None) -> None:
        self.user = user
        has_roles = bool(scope_of(user).roles)
        self._given = delegations_in_force(at, to_user=user) if at is not None and has_roles else []

    @property
    def people(self) -> frozenset[int]:
        """The keys of this user and of the users who delegated to them."""
        own = {self.user.pk} if self.user else set()
        return frozenset(own | {given.from_user_id for given in self._given})

    def right(self, group: ApprovalGroup | None, facts: ApprovalFacts) -> Right | None:
        """Return the right to sign for a group, or None; no one signs their own request."""
        if not self.user or not scope_of(self.user).sees(facts.experiment_id) or self.user.pk in facts.requesters:
            return None
        if is_in_group(self.user, group, facts):
            return Right(group)
        for given in self._given:
            if given.from_user_id not in facts.requesters and _covers(given, group, facts):
                return Right(group, given.from_user)
        return None


def delegations_in_force(at: datetime, **fitting: Any) -> list[Delegation]:
    """Return the delegations in force at a time, with the roles of the delegators, in a fixed number of queries."""
    found = Delegation.objects.filter(revoked_at=None, from_at__lte=at, until_at__gt=at, **fitting)
    found = found.select_related("from_user", "to_user", "group").order_by("pk")
    given = list(found.prefetch_related("from_user__memberships"))
    for one in given:
        roles = one.from_user.memberships.all() if one.from_user.is_active else ()
        one.from_user._scope = Scope(frozenset((held.role, held.experiment_id) for held in roles))
    return given


def _covers(given: Delegation, group: ApprovalGroup | None, facts: ApprovalFacts) -> bool:
    if given.group_id is not None and (group is None or group.pk != given.group_id):
        return False
    if given.role and group is not None:
        return False
    giver = given.from_user
    return scope_of(giver).sees(facts.experiment_id) and is_in_group(giver, group, facts)


def is_in_group(user: User, group: ApprovalGroup | None, facts: ApprovalFacts) -> bool:
    """Whether a user belongs to a group for this request; without a group, whether they are an approver."""
    scope = scope_of(user)
    if group is None:
        return scope.has(Role.APPROVER, facts.experiment_id)
    if group.role and scope.has(Role(group.role), facts.experiment_id):
        return True
    return bool(scope.roles) and user.pk in {member.pk for member in group.members.all()}


@dataclass(frozen=True, order=True)
class Person:
    """A user who can sign, possibly on behalf of `for_name`; both are usernames."""

    name: str
    for_name: str = ""

    def __str__(self) -> str:
        return f"{self.name} for {self.for_name}" if self.for_name else self.name


@dataclass(frozen=True)
class Slot:
    """One required signature: given, or who can give it; `changes` since `earlier`, a withdrawn signature."""

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
    return ApprovalFacts(request.pk, request.experiment_id, request.workflow.type_id, request.requester_ids)


def slots_of(request: Request, user: User | None = None, at: datetime | None = None) -> list[Slot]:
    """Return the required signatures of a request, with this user's right to sign each."""
    live = Signature.objects.filter(request=request, withdrawn_at=None).select_related("by", "for_user")
    given = {signature.group_id: signature for signature in live}
    facts, signer = approval_facts(request), Signer(user, at)
    return [
        Slot(group, given.get(group.pk if group else None), signer.right(group, facts))
        for group in Rules().groups_for(facts)
    ]


def may_sign(request: Request, user: User, at: datetime | None) -> bool:
    """Whether a user may sign for one of the required groups, signed or not."""
    facts, signer = approval_facts(request), Signer(user, at)
    return any(signer.right(group, facts) for group in Rules().groups_for(facts))


def has_to_sign(slots: Iterable[Slot]) -> bool:
    """Whether this user has a signature to give; if none is missing, whether they may give the final approval."""
    slots = list(slots)
    missing = [slot for slot in slots if slot.signature is None]
    return any(slot.mine for slot in missing or slots)


def possible_signers(
    groups: Iterable[ApprovalGroup | None], facts: ApprovalFacts, at: datetime
) -> dict[int | None, list[Person]]:
    """Return who can sign for each group: members who can see the request and are not its requesters."""
    of_experiment = Q(experiment=None) | Q(experiment=facts.experiment_id)
    of_opg = Q(experiment=None, role__in=OPG_ROLES)
    roles: dict[int, set[str]] = {}
    names: dict[int, str] = {}
    memberships = Membership.objects.filter(of_experiment, user__is_active=True)
    for pk, name, role in memberships.values_list("user_id", "user__username", "role"):
        roles.setdefault(pk, set()).add(role)
        names[pk] = name
    seers = Membership.objects.filter(of_opg | Q(experiment=facts.experiment_id), user__is_active=True)
    may_see = set(seers.values_list("user_id", flat=True))
    given = delegations_in_force(at)
    found: dict[int | None, list[Person]] = {}
    for group in groups:
        role = group.role if group else Role.APPROVER.value
        members = {member.pk for member in group.members.all()} if group else set()
        own = {pk for pk in may_see if pk in members or role in roles.get(pk, ())} - facts.requesters
        people = {Person(names[pk]) for pk in own}
        people |= {
            Person(one.to_user.username, one.from_user.username)
            for one in given
            if one.from_user_id in own
            and one.to_user_id in may_see - own - facts.requesters
            and _covers(one, group, facts)
        }
        found[group.pk if group else None] = sorted(people)
    return found


@dataclass(frozen=True)
class Approval:
    """The signatures of a request, and which of them the user can give or withdraw."""

    slots: list[Slot]
    may_withdraw: frozenset[int] = frozenset()

    @property
    def missing(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.signature is None]

    @property
    def mine(self) -> list[Slot]:
        return [slot for slot in self.missing if slot.mine]


def approval_of(request: Request, user: User, at: datetime, *, slots: Iterable[Slot] | None = None) -> Approval:
    """Return the required signatures of a request, or those it was approved with.

    Pass `slots`, the result of `slots_of` for this user, to save its queries.
    """
    given = list(Signature.objects.filter(request=request).select_related("by", "for_user", "group").order_by("pk"))
    if request.state in SIGNED:
        return Approval([Slot(one.group, one) for one in given if one.withdrawn_at is None])
    if request.state in {RequestState.DRAFT, RequestState.CANCELLED, RequestState.SUPERSEDED, RequestState.REJECTED}:
        return Approval([])
    slots = slots_of(request, user, at) if slots is None else list(slots)
    people = possible_signers([slot.group for slot in slots], approval_facts(request), at)
    slots = [_filled(request, slot, people, given) for slot in slots]
    own = [
        one.signature for one in slots if one.signature and user.pk in {one.signature.by_id, one.signature.for_user_id}
    ]
    is_open = request.state == RequestState.AWAITING_APPROVAL
    return Approval(slots, frozenset(one.pk for one in own if is_open))


def move_message(request: Request, verb: str) -> str:
    """Return the message after a move; an approval may still lack other signatures."""
    if verb == Verb.APPROVE and request.state == RequestState.AWAITING_APPROVAL:
        missing = ", ".join(slot.name for slot in slots_of(request) if slot.signature is None)
        return f"You signed {request}. Still missing: {missing}."
    return f"{request} is now “{request.get_state_display()}”."


def _filled(request: Request, slot: Slot, people: dict[int | None, list[Person]], given: list[Signature]) -> Slot:
    group = slot.group.pk if slot.group else None
    names = [str(person) for person in people.get(group, [])]
    more = [f"{len(names) - MAX_PEOPLE} more"] if len(names) > MAX_PEOPLE else []
    slot = replace(slot, people=(*names[:MAX_PEOPLE], *more))
    # Without an earlier signature of this group, compare with the last one of any group.
    before = [one for one in reversed(given) if one.withdrawn_at is not None]
    earlier = next((one for one in before if one.group_id == group), before[0] if before else None)
    if slot.signature is not None or earlier is None:
        return slot
    now = content_of(request)
    changed = changes(read_plain(earlier.content, now.workflow)[0], now)
    return replace(slot, earlier=earlier, changes=tuple(changed[:MAX_CHANGES]))
