"""What a page says after a move."""

from apps.production.domain.approvals.requirements import slots_of
from apps.production.domain.forecast import expected_class
from apps.production.domain.priority.ranks import ordinal, rank_of, ranked_requests
from apps.production.enums import RequestState, Verb
from apps.production.models import Request


def move_message(request: Request, verb: str) -> str:
    """Return the message after a move.

    After an approval, it names the signatures still missing, or the place in the queue.
    """
    if verb == Verb.APPROVE and request.state == RequestState.AWAITING_APPROVAL:
        missing = ", ".join(slot.name for slot in slots_of(request) if slot.signature is None)
        return f"You signed {request}. Still missing: {missing}."
    rank = rank_of(request) if verb == Verb.APPROVE else None
    if rank:
        place = f"{ordinal(rank)} of {ranked_requests().count():,} in the queue"
        return f"{request} is approved as {expected_class(request)}, {place}."
    return f"{request} is now “{request.get_state_display()}”."
