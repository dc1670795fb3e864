"""Reminders of long waits: once per wait of a request, repeatedly for holds."""

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from apps.core.domain.events import publish
from apps.production.domain.approvals.inbox import (
    Wait,
    responsible_users,
    users_awaited,
    waits_of,
)
from apps.production.domain.approvals.requirements import ApprovalRules
from apps.production.domain.approvals.waits import WAIT_KINDS
from apps.production.domain.holds import (
    event_target,
    hold_experiment_id,
    hold_level,
    hold_subject,
    may_lift,
    open_holds,
)
from apps.production.enums import CLOSED, PORTAL, RequestState
from apps.production.models import Attention, Hold, Reminder, Request

#: Waits with reminders. Drafts have none, because only their author waits for them.
WAITING = tuple(wait for wait in WAIT_KINDS if wait != RequestState.DRAFT)


def remind_of_waiting(*, at: datetime) -> int:
    """Publish a reminder for every wait that is longer than the rules allow; return how many."""
    named = Q(state__in=[wait for wait in WAITING if wait in RequestState]) | Q(
        pk__in=Attention.objects.values("request")
    )
    waiting = list(Request.objects.filter(named).select_related("workflow").order_by("pk"))
    waits = waits_of(waiting, at)
    rules = ApprovalRules()
    reminded = set(
        Reminder.objects.filter(request__in=waiting).values_list("request_id", "state", "since")
    )
    count = 0
    for request in waiting:
        days = rules.remind_after(request.experiment_id, request.workflow.type_id)
        for wait in waits[request.pk] if days else ():
            is_long = wait.kind in WAITING and at - wait.since >= timedelta(days=days)
            if is_long and (request.pk, wait.kind, wait.since) not in reminded:
                count += remind(request=request, wait=wait, days=days, at=at)
    return count


@transaction.atomic
def remind(*, request: Request, wait: Wait, days: int, at: datetime) -> bool:
    """Publish `request.reminder` to the responsible users, and return whether it was new.

    Nothing is published if the wait is over or was reminded of before.
    """
    current = (
        Request.objects.select_for_update(of=("self",))
        .select_related("workflow")
        .get(pk=request.pk)
    )
    if (current.version, current.state) != (request.version, request.state):
        return False
    _, made = Reminder.objects.get_or_create(
        request=current, state=wait.kind, since=wait.since, defaults={"at": at}
    )
    if made:
        groups, people = users_awaited(current, wait.kind, at)
        data = {
            "groups": groups,
            "people": people,
            "state": wait.kind,
            "since": wait.since.isoformat(),
            "days": days,
        }
        todo = f"{wait.todo}. Waiting since {wait.since:%-d %b %Y}."
        publish(kind="request.reminder", target=current, by=PORTAL, at=at, reason=todo, data=data)
    return made


def remind_of_holds(*, at: datetime) -> int:
    """Publish reminders of active holds at the interval set by their rules. Return their number."""
    rules = ApprovalRules()
    count = 0
    for hold in open_holds():
        days = rules.remind_after(hold_experiment_id(hold))
        is_closed = hold.stage is not None and hold.stage.request.state in CLOSED
        if days and not is_closed and at - (hold.reminded_at or hold.at) >= timedelta(days=days):
            count += remind_of_hold(hold=hold, days=days, at=at)
    return count


@transaction.atomic
def remind_of_hold(*, hold: Hold, days: int, at: datetime) -> bool:
    """Publish `hold.reminder` to the user who placed the hold, or to those who can lift it.

    Return False if the hold is lifted or the reminder was already sent.
    """
    if not Hold.objects.filter(pk=hold.pk, lifted_at=None, reminded_at=hold.reminded_at).update(
        reminded_at=at
    ):
        return False
    if hold.by is not None and hold.by.is_active and may_lift(hold.by, hold):
        users = [hold.by.username]
    else:
        users = responsible_users(RequestState.ON_HOLD, hold_experiment_id(hold))
    data = {
        "hold": hold.pk,
        "level": hold_level(hold),
        "people": users,
        "since": hold.at.isoformat(),
        "days": days,
    }
    todo = (
        f"Lift or keep the hold: {hold_subject(hold)} is on hold since {hold.at:%-d %b %Y}. "
        f"{hold.reason}"
    )
    publish(
        kind="hold.reminder", target=event_target(hold), by=PORTAL, at=at, reason=todo, data=data
    )
    return True
