"""Reminding of requests that wait long, once for each wait; whoever sends mail listens to `request.reminder`."""

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from apps.accounts.enums import Role
from apps.accounts.models import Membership
from apps.core.services import publish
from apps.production.approval_models import Reminder
from apps.production.approvals import Rules, asked_of, people_of, slots_of
from apps.production.enums import PORTAL, RequestState
from apps.production.models import Request
from apps.production.turns import arrivals

#: States in which a request waits for people.
WAITING = (RequestState.AWAITING_APPROVAL, RequestState.CHANGES_ASKED)


def remind_of_waiting(*, at: datetime) -> int:
    """Publish a reminder for every request that waits longer than its rules say; return for how many."""
    waiting = list(Request.objects.filter(state__in=WAITING).select_related("workflow").order_by("pk"))
    arrived, rules = arrivals(waiting), Rules()
    reminded = set(Reminder.objects.filter(request__state__in=WAITING).values_list("request_id", "state", "since"))
    count = 0
    for request in waiting:
        event, days = arrived.get(request.pk), rules.remind_after(asked_of(request))
        if event is None or not days or at - event.at < timedelta(days=days):
            continue
        if (request.pk, request.state, event.at) not in reminded:
            count += remind(request=request, since=event.at, days=days, at=at)
    return count


@transaction.atomic
def remind(*, request: Request, since: datetime, days: int, at: datetime) -> bool:
    """Publish `request.reminder` with whom it waits for, unless this wait was reminded of or is over."""
    current = Request.objects.select_for_update().select_related("workflow").get(pk=request.pk)
    if current.version != request.version:
        return False
    _, made = Reminder.objects.get_or_create(request=current, state=current.state, since=since, defaults={"at": at})
    if made:
        data = {**_awaited(current, at), "state": current.state, "since": since.isoformat(), "days": days}
        publish(kind="request.reminder", target=current, by=PORTAL, at=at, data=data)
    return made


def _awaited(request: Request, at: datetime) -> dict[str, Any]:
    """Return the groups whose signature is missing, and the names of the people who can act, with their stand-ins."""
    if request.state == RequestState.CHANGES_ASKED:
        held = Membership.objects.filter(role=Role.LIAISON, user__is_active=True)
        held = held.filter(experiment=request.experiment_id) | held.filter(experiment=None)
        return {"groups": [], "people": sorted(set(held.values_list("user__username", flat=True)))}
    missing = [slot for slot in slots_of(request) if slot.signature is None]
    found = people_of([slot.group for slot in missing], asked_of(request), at)
    people = sorted({person.name for persons in found.values() for person in persons})
    return {"groups": [slot.group.name for slot in missing if slot.group], "people": people}
