"""Reminding of requests that wait long, once for each wait; whoever sends mail listens to `request.reminder`."""

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from apps.core.services import publish
from apps.production.approval_models import Reminder
from apps.production.approvals import Rules, asked_of
from apps.production.enums import PORTAL, RequestState
from apps.production.models import Request, RequestQuerySet
from apps.production.turns import MOVERS, TODO, arrivals, awaited, waits_in, waits_since

#: States of the inbox of which is reminded. Nobody but its maker waits for a draft.
WAITING = (RequestState.AWAITING_APPROVAL, *(state for state in MOVERS if state != RequestState.DRAFT))


def remind_of_waiting(*, at: datetime) -> int:
    """Publish a reminder for every request that waits longer than its rules say; return for how many."""
    waiting = list(_waiting(at).select_related("workflow").order_by("pk"))
    since, rules = waits_since(waiting, arrivals(waiting)), Rules()
    reminded = set(Reminder.objects.filter(request__in=waiting).values_list("request_id", "state", "since"))
    count = 0
    for request in waiting:
        moment, days = since.get(request.pk), rules.remind_after(asked_of(request))
        if moment is None or not days or at - moment < timedelta(days=days):
            continue
        if (request.pk, request.state, moment) not in reminded:
            count += remind(request=request, since=moment, days=days, at=at)
    return count


def _waiting(at: datetime) -> RequestQuerySet[Request]:
    """Return the requests that are in the inbox of somebody, but for drafts."""
    found = Q(pk__in=[])
    for state in WAITING:
        found |= waits_in(state, at)
    return Request.objects.filter(found)


@transaction.atomic
def remind(*, request: Request, since: datetime, days: int, at: datetime) -> bool:
    """Publish `request.reminder` with whom it waits for, unless this wait was reminded of or is over."""
    current = Request.objects.select_for_update(of=("self",)).select_related("workflow").get(pk=request.pk)
    if (current.version, current.state) != (request.version, request.state):
        return False
    _, made = Reminder.objects.get_or_create(request=current, state=current.state, since=since, defaults={"at": at})
    if made:
        groups, people = awaited(current, at)
        told = {"groups": groups, "people": people, "state": current.state, "since": since.isoformat(), "days": days}
        todo = f"{TODO[RequestState(current.state)]}: it waits since {since:%Y-%m-%d}."
        publish(kind="request.reminder", target=current, by=PORTAL, at=at, reason=todo, data=told)
    return made
