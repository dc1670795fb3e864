"""What a page says after a move."""

from datetime import datetime

from apps.production.domain.approvals.requirements import slots_of
from apps.production.domain.content.stages import content_of
from apps.production.domain.forecast import expected_class
from apps.production.domain.holds import hold_of
from apps.production.domain.outlook import find_hindrances
from apps.production.domain.priority.free_clusters import read_automatic_starts
from apps.production.domain.priority.ranks import format_ordinal, rank_of, ranked_requests
from apps.production.enums import RequestState, Verb
from apps.production.models import QueueState, Request


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
        cluster = _starts_on(request, at) if at else ""
        if cluster:
            return f"{approved}. {cluster} has room for it and starts it within minutes."
        place = f"{format_ordinal(rank)} of {ranked_requests().count():,} in the queue"
        return f"{approved}, {place}."
    moved = f"{request} is now “{request.get_state_display()}”."
    if verb in (Verb.START, Verb.TEST) and at:
        waits_for = find_hindrances([request], at).waits_for.get(request.pk)
        if waits_for:
            return f"{moved} Its jobs wait until {waits_for}."
    return moved


def _starts_on(request: Request, at: datetime) -> str:
    """Return the cluster with room left that starts a queued request at once; empty without one."""
    state = QueueState.objects.filter(pk=1).first()
    if state is None or hold_of(request) is not None:
        return ""
    starts = read_automatic_starts(state, at=at)
    for cluster in starts.clusters_for(request, content_of(request)):
        if cluster.room.has_any(request.experiment.key):
            return cluster.name
    return ""
