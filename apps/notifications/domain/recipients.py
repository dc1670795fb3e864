"""Reading notifications: what a person may see, who is concerned by an event, what waits to be sent."""

from collections.abc import Mapping

from django.db.models import Q, QuerySet

from apps.accounts.enums import Role
from apps.accounts.models import Membership, User
from apps.accounts.permissions import is_opg
from apps.core.models import Event
from apps.notifications.domain.kinds import Concerned, group_for, kind_of
from apps.notifications.enums import Group, Level
from apps.notifications.models import Follow, Webhook
from apps.production.domain.approvals.slots import asked_of, people_of, slots_of
from apps.production.domain.holds import requests_under
from apps.production.models import Hold, Request


def concerned_by(event: Event, request: Request) -> dict[int, Group]:
    """Return whom an event concerns, by primary key, and as what; never who did it, nor who has muted the request."""
    reasons: dict[int, set[Concerned]] = {}
    for reason, people in _candidates(event, request).items():
        for pk in people:
            reasons.setdefault(pk, set()).add(reason)
    for pk in Follow.objects.filter(request=request, level=Level.MUTED).values_list("user_id", flat=True):
        reasons.pop(pk, None)
    return _groups(event, reasons)


def _groups(event: Event, reasons: Mapping[int, set[Concerned]]) -> dict[int, Group]:
    actors = set(User.objects.filter(username=event.actor).values_list("pk", flat=True))
    kind = kind_of(event)
    groups = {pk: group_for(kind, why) for pk, why in reasons.items() if pk not in actors}
    return {pk: group for pk, group in groups.items() if group is not None}


def concerned_by_hold(event: Event, hold: Hold) -> tuple[dict[int, Group], set[int]]:
    """Return whom a hold over many requests concerns, as what, and the experiments of these; some queries for all.

    Each person counts once, for all requests under it that the person has not muted.
    """
    under = requests_under(hold)
    rows = list(under.values_list("pk", "experiment_id", "created_by_id", "submitted_by_id"))
    liaisons: dict[int | None, set[int]] = {}
    for experiment, user in Membership.objects.filter(role=Role.LIAISON).values_list("experiment_id", "user_id"):
        liaisons.setdefault(experiment, set()).add(user)
    follows: dict[str, dict[int, set[int]]] = {level: {} for level in Level.values}
    for level, pk, user in Follow.objects.filter(request__in=under).values_list("level", "request_id", "user_id"):
        follows[level].setdefault(pk, set()).add(user)
    reasons: dict[int, set[Concerned]] = {}
    for pk, experiment, *requesters in rows:
        people = {
            Concerned.REQUESTER: {user for user in requesters if user is not None},
            Concerned.LIAISONS: liaisons.get(experiment, set()) | liaisons.get(None, set()),
            Concerned.WATCHERS: follows[Level.WATCHING].get(pk, set()),
        }
        for reason, users in people.items():
            for user in users - follows[Level.MUTED].get(pk, set()):
                reasons.setdefault(user, set()).add(reason)
    for user in _named(event):
        reasons.setdefault(user, set()).add(Concerned.MENTIONED)
    return _groups(event, reasons), {experiment for _, experiment, *_ in rows}


def _candidates(event: Event, request: Request) -> dict[Concerned, set[int]]:
    requester = {pk for pk in (request.created_by_id, request.submitted_by_id) if pk is not None}
    here = Q(experiment=request.experiment_id) | Q(experiment=None)
    members: dict[str, set[int]] = {}
    for role, pk in Membership.objects.filter(here).values_list("role", "user_id"):
        members.setdefault(role, set()).add(pk)
    watchers = Follow.objects.filter(request=request, level=Level.WATCHING).values_list("user_id", flat=True)
    return {
        Concerned.REQUESTER: requester,
        Concerned.LIAISONS: members.get(Role.LIAISON, set()),
        Concerned.APPROVERS: _signers(event, request)
        if event.kind == "request.pass"
        else members.get(Role.APPROVER, set()) - requester,
        Concerned.WATCHERS: set(watchers),
        Concerned.MENTIONED: _named(event),
    }


def _named(event: Event) -> set[int]:
    """Return the people whom an event names: those who are mentioned, or reminded."""
    data = event.data if isinstance(event.data, dict) else {}
    named = data.get("people" if event.kind in {"request.reminder", "hold.reminder"} else "mentioned")
    names = [str(name) for name in named] if isinstance(named, list) else []
    return set(User.objects.filter(username__in=names).values_list("pk", flat=True)) if names else set()


def _signers(event: Event, request: Request) -> set[int]:
    """Return who can give a signature that is missing, also in the place of somebody who is away."""
    missing = [slot.group for slot in slots_of(request) if slot.signature is None]
    people = people_of(missing, asked_of(request), event.at)
    names = {person.name for group in people.values() for person in group}
    return set(User.objects.filter(username__in=names).values_list("pk", flat=True))


def webhooks_for(user: User) -> QuerySet[Webhook]:
    """Return the webhooks that this person may change: the own ones; for the OPG those of experiments too."""
    mine = Q(user=user)
    if is_opg(user):
        mine |= Q(experiment__isnull=False)
    return Webhook.objects.filter(mine).select_related("experiment").order_by("pk")
