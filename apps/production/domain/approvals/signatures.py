"""Give and withdraw signatures. The caller opens the transaction and locks the request."""

from datetime import datetime
from typing import Any

from django.db.models import Q

from apps.accounts.models import User
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed
from apps.production.domain.approvals.requirements import slots_of
from apps.production.domain.content.model import RequestContent
from apps.production.domain.content.serialization import plain
from apps.production.models import Request, Signature


def sign(
    *, request: Request, content: RequestContent, by: User, at: datetime, group: str = ""
) -> tuple[list[Signature], bool]:
    """Sign for every unsigned group of this user, or for the named one.

    Also return whether all groups have signed now. Raises `InvalidFields` for an unknown group,
    `InvalidTransition` if the group has already signed, `NotAllowed`.
    """
    slots = slots_of(request, by, at)
    missing = [slot for slot in slots if slot.signature is None]
    if group:
        slots = [slot for slot in slots if slot.group is not None and slot.group.name == group]
        if not slots:
            raise InvalidFields({"group": [f"A signature of “{group[:100]}” is not required."]})
    mine = [slot for slot in slots if slot.mine]
    if not mine:
        raise NotAllowed(f"You are not a member of {slots[0].name}, which must sign.")
    free = [slot for slot in mine if slot.signature is None]
    if missing and not free:
        existing = []
        for slot in mine:
            if slot.signature:
                existing.append(f"{slot.signature.by} signed for {slot.name}")
        lacking = ", ".join(slot.name for slot in missing)
        raise InvalidTransition(
            f"{request} is already signed: {'; '.join(existing)}. Missing: {lacking}."
        )
    made = []
    for slot in free:
        made.append(
            Signature.objects.create(
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
        )
    return made, len(missing) == len(made)


def signature_data(signatures: list[Signature]) -> dict[str, Any]:
    """Return the event data of signatures: groups, and users on whose behalf they were given."""
    groups = [signature.group_name for signature in signatures if signature.group_name]
    absent = sorted({str(signature.for_user) for signature in signatures if signature.for_user})
    return ({"groups": groups} if groups else {}) | ({"for": absent} if absent else {})


def withdraw_own(
    *, request: Request, signature: int, by: User, at: datetime, reason: str
) -> Signature:
    """Withdraw a signature given by or for this user. Raises `InvalidTransition`, `NotAllowed`."""
    own_signature = (
        Signature.objects.filter(request=request, pk=signature)
        .select_related("by", "for_user")
        .first()
    )
    if own_signature is None or own_signature.withdrawn_at is not None:
        raise InvalidTransition(f"{request} no longer has this signature.")
    if by.pk not in {own_signature.by_id, own_signature.for_user_id}:
        raise NotAllowed("You can withdraw only signatures given by you or for you.")
    _withdraw(Q(pk=own_signature.pk), by=by, at=at, reason=reason)
    return own_signature


def withdraw_all(*, request: Request, by: User, at: datetime, reason: str) -> int:
    """Withdraw all signatures because the content changed, and return their number."""
    return _withdraw(Q(request=request), by=by, at=at, reason=reason)


def withdraw_of_requester(*, request: Request, by: User, at: datetime, reason: str) -> int:
    """Withdraw signatures by or for this user, who is a requester now, and return their number."""
    return _withdraw(Q(request=request) & _by_or_for(by), by=by, at=at, reason=reason)


def has_signed(request: Request, user: User) -> bool:
    """Whether a signature by or for this user is in force."""
    return Signature.objects.filter(_by_or_for(user), request=request, withdrawn_at=None).exists()


def _by_or_for(user: User) -> Q:
    return Q(by=user) | Q(for_user=user)


def _withdraw(which: Q, *, by: User, at: datetime, reason: str) -> int:
    live = Signature.objects.filter(which, withdrawn_at=None)
    return live.update(withdrawn_at=at, withdrawn_by=str(by)[:150], withdrawn_reason=reason)
