"""The signatures of a request for page and API: given, missing, and what changed since."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from apps.accounts.models import User
from apps.production.domain.approvals.requirements import (
    MAX_PEOPLE,
    Person,
    Slot,
    approval_facts,
    possible_signers,
    slots_of,
)
from apps.production.domain.content.model import changes
from apps.production.domain.content.serialization import read_plain
from apps.production.domain.content.stages import content_of
from apps.production.enums import SIGNED, RequestState, Verb
from apps.production.models import Request, Signature

#: A page shows at most this many changes since a signature.
MAX_CHANGES = 200


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
