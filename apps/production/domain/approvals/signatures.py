"""Give and withdraw signatures, within a transaction of the caller, which locks the request."""

from datetime import datetime
from typing import Any

from apps.accounts.models import User
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed
from apps.production.domain.approvals.requirements import Slot, slots_of
from apps.production.domain.content.model import RequestContent
from apps.production.domain.content.serialization import plain
from apps.production.models import Request, Signature


def sign(
    *, request: Request, content: RequestContent, by: User, at: datetime, group: str = ""
) -> tuple[list[Signature], bool]:
    """Sign for every unsigned group of this user, or the one named; also return whether all have signed now.

    Raises `InvalidFields` for an unknown group, `InvalidTransition` if the group has already signed, `NotAllowed`.
    """
    slots = slots_of(request, by, at)
    if group:
        slots = [slot for slot in slots if slot.group is not None and slot.group.name == group]
        if not slots:
            raise InvalidFields({"group": [f"A signature of “{group[:100]}” is not required."]})
    mine = [slot for slot in slots if slot.mine]
    if not mine:
        raise NotAllowed(f"You are not a member of {slots[0].name}, which must sign.")
    free = [slot for slot in mine if slot.signature is None]
    missing = [slot for slot in slots_of(request) if slot.signature is None]
    if missing and not free:
        raise InvalidTransition(f"{request} is already signed: {_words(mine)}. {_lacking(missing)}")
    made = [_write(request, slot, content, by, at) for slot in free]
    return made, len(missing) == len(made)


def _write(request: Request, slot: Slot, content: RequestContent, by: User, at: datetime) -> Signature:
    return Signature.objects.create(
        request=request,
        group=slot.group,
        group_name=slot.group.name if slot.group else "",
        by=by,
        for_user=slot.mine.for_user if slot.mine else None,
        made_by=request.created_by,
        sent_by=request.submitted_by,
        at=at,
        version=request.version,
        content=plain(content),
    )


def signature_data(signatures: list[Signature]) -> dict[str, Any]:
    """Return the event data of signatures: groups, and users signed for."""
    groups = [signature.group_name for signature in signatures if signature.group_name]
    absent = sorted({str(signature.for_user) for signature in signatures if signature.for_user})
    return ({"groups": groups} if groups else {}) | ({"for": absent} if absent else {})


def withdraw_own(*, request: Request, signature: int, by: User, at: datetime, reason: str) -> Signature:
    """Withdraw a signature given by or for this user. Raises `InvalidTransition`, `NotAllowed`."""
    found = Signature.objects.filter(request=request, pk=signature).select_related("by", "for_user").first()
    if found is None or found.withdrawn_at is not None:
        raise InvalidTransition(f"{request} does not have this signature any more.")
    if by.pk not in {found.by_id, found.for_user_id}:
        raise NotAllowed("You can withdraw only signatures given by you or for you.")
    _withdraw([found], by=by, at=at, reason=reason)
    return found


def withdraw_all(*, request: Request, by: User, at: datetime, reason: str) -> int:
    """Withdraw all signatures, because the content changed; return how many there were."""
    return _withdraw(list(_live(request)), by=by, at=at, reason=reason)


def withdraw_of_requester(*, request: Request, by: User, at: datetime) -> int:
    """Withdraw signatures given by or for this user, who is now the requester."""
    own = [signature for signature in _live(request) if by.pk in {signature.by_id, signature.for_user_id}]
    return _withdraw(own, by=by, at=at, reason=f"{by} submitted the request.")


def _live(request: Request) -> Any:
    return Signature.objects.filter(request=request, withdrawn_at=None)


def _withdraw(signatures: list[Signature], *, by: User, at: datetime, reason: str) -> int:
    pks = [signature.pk for signature in signatures]
    return Signature.objects.filter(pk__in=pks).update(
        withdrawn_at=at, withdrawn_by=str(by)[:150], withdrawn_reason=reason
    )


def _words(slots: list[Slot]) -> str:
    return "; ".join(f"{slot.signature.by} signed for {slot.name}" for slot in slots if slot.signature)


def _lacking(slots: list[Slot]) -> str:
    return f"Missing: {', '.join(slot.name for slot in slots)}."
