"""What a page says after a move."""

from datetime import datetime

from apps.production.domain.approvals.requirements import slots_of
from apps.production.domain.forecast import expected_class
from apps.production.domain.outlook import find_hindrances
from apps.production.domain.priority.ranks import ordinal, rank_of, ranked_requests
from apps.production.enums import RequestState, Verb
from apps.production.models import QueueEntry, Request


def move_message(request: Request, verb: str, *, at: datetime | None = None) -> str:
    """Return the message after a move.

    After an approval, it names the signatures still missing, the cluster that starts the request at
    once, or the place in the queue; after a start, the services that are down and keep its jobs
    waiting. Without `at`, as for several requests together, of which a cluster may start only the
    first, it names no cluster.
    """
    if verb == Verb.APPROVE and request.state == RequestState.AWAITING_APPROVAL:
        missing = ", ".join(slot.name for slot in slots_of(request) if slot.signature is None)
        return f"You signed {request}. Still missing: {missing}."
    rank = rank_of(request) if verb == Verb.APPROVE else None
    if rank:
        approved = f"{request} is approved as {expected_class(request)}"
        cluster = _starts_on(request) if at else ""
        if cluster:
            return f"{approved}. {cluster} has room for it and starts it within minutes."
        place = f"{ordinal(rank)} of {ranked_requests().count():,} in the queue"
        return f"{approved}, {place}."
    moved = f"{request} is now “{request.get_state_display()}”."
    if verb in (Verb.START, Verb.TEST) and at:
        waits_for = find_hindrances([request], at).waits_for.get(request.pk)
        if waits_for:
            return f"{moved} Its jobs wait until {waits_for}."
    return moved


def _starts_on(request: Request) -> str:
    """Return the cluster with room left that starts a queued request at once; empty without one."""
    entries = QueueEntry.objects.filter(pk=request.pk)
    return entries.values_list("starts_on", flat=True).first() or ""
