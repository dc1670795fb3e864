"""What waits for whom, and since when: one table for inbox and reminders; and the signatures that a person can give."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from apps.accounts.enums import Role
from apps.accounts.models import Membership, User
from apps.accounts.permissions import scope_of
from apps.core.models import Event
from apps.production.domain.approvals.slots import Asked, Right, Rules, Signer, asked_of, people_of, slots_of
from apps.production.enums import RequestState
from apps.production.models import Request, Signature

_LIAISONS, _OPG = (Role.LIAISON,), (Role.APPROVER, Role.SHIFTER)
#: Whose roles give the next move to them, by state; a draft is its maker's alone, and who signs is in `approvals`.
MOVERS: Mapping[RequestState, tuple[Role, ...]] = {
    RequestState.DRAFT: _LIAISONS,
    RequestState.CHANGES_REQUESTED: _LIAISONS,
    RequestState.ON_HOLD: _OPG,
    RequestState.DATA_QUALITY: _OPG,
    RequestState.RUNNING: _OPG,
}


def waits_in(state: RequestState) -> Q:
    """Keep the requests of a state that wait for people; a running one does only where its jobs do."""
    waits = Q(state=state)
    return waits & Q(jobs_wait_since__isnull=False) if state == RequestState.RUNNING else waits


def awaited(request: Request, at: datetime) -> tuple[list[str], list[str]]:
    """Return for whom a request waits, by name: groups whose signature is missing, and people, with their stand-ins.

    The request must be one that waits, and no draft. Whoever is named has it in the inbox, and nobody else.
    """
    if request.state == RequestState.AWAITING_APPROVAL:
        slots = slots_of(request)
        missing = [slot for slot in slots if slot.signature is None] or slots
        found = people_of([slot.group for slot in missing], asked_of(request), at)
        people = {person.name for persons in found.values() for person in persons}
        return [slot.group.name for slot in missing if slot.group], sorted(people)
    return [], movers(RequestState(request.state), request.experiment_id)


def movers(state: RequestState, experiment_id: int | None) -> list[str]:
    """Return by name whose roles give them the next move in a state; with None, that of all experiments alone."""
    here = Q(experiment=None) | Q(experiment=experiment_id)
    held = Membership.objects.filter(here, role__in=MOVERS[state], user__is_active=True)
    return sorted(set(held.values_list("user__username", flat=True)))


def signable(user: User, at: datetime | None, among: Iterable[int] | None = None) -> dict[int, list[Right]]:
    """Return the requests that lack a signature of this person, with the rights to give it; some queries for all.

    With `among`, of these alone. Requests that are alike in all that the rights depend on are judged once.
    """
    if not scope_of(user).roles:
        return {}
    waiting = Request.objects.visible_to(user).filter(state=RequestState.AWAITING_APPROVAL)
    if among is not None:
        waiting = waiting.filter(pk__in=list(among))
    rows = list(waiting.values_list("pk", "experiment_id", "workflow__type_id", "created_by_id", "submitted_by_id"))
    rules, signer, signed = Rules(), Signer(user, at), _signed_groups([row[0] for row in rows])
    barred = signer.people
    known: dict[tuple[int, int, frozenset[int], frozenset[int | None]], list[Right]] = {}
    found = {}
    for pk, of, kind, maker, sender in rows:
        alike = (of, kind, frozenset({maker, sender} & barred), frozenset(signed.get(pk, ())))
        if alike not in known:
            known[alike] = _rights(Asked(pk, *alike[:3]), rules, signer, alike[3])
        if known[alike]:
            found[pk] = known[alike]
    return found


def _signed_groups(requests: list[int]) -> dict[int, set[int | None]]:
    """Return the groups whose signature holds, by request."""
    live = Signature.objects.filter(request__in=requests, withdrawn_at=None).order_by()
    found: dict[int, set[int | None]] = {}
    for request, group in live.values_list("request_id", "group_id"):
        found.setdefault(request, set()).add(group)
    return found


def _rights(asked: Asked, rules: Rules, signer: Signer, signed: frozenset[int | None]) -> list[Right]:
    groups = rules.groups_for(asked)
    missing = [group for group in groups if (group.pk if group else None) not in signed]
    rights = (signer.right(group, asked) for group in missing or groups)
    return [right for right in rights if right is not None]


@dataclass(frozen=True)
class Turn:
    """One request that waits for a person: what to do, why, for whom it is done, and since when."""

    request: Request
    todo: str
    why: str
    since: datetime
    for_users: tuple[str, ...] = ()


TODO = {
    RequestState.AWAITING_APPROVAL: "Approve it, request changes or reject it",
    RequestState.CHANGES_REQUESTED: "Change it and submit it again",
    RequestState.DRAFT: "Finish the draft and submit it",
    RequestState.ON_HOLD: "Release it, or end it",
    RequestState.RUNNING: "Send its failed jobs again, or go on without them",
    RequestState.DATA_QUALITY: "Judge its data quality and close it",
}


def turns_of(requests: Iterable[Request], user: User, at: datetime) -> list[Turn]:
    """Return what this person has to do for each of these requests, in their order."""
    requests = list(requests)
    rights, arrived = signable(user, at, [request.pk for request in requests]), arrivals(requests)
    since = waits_since(requests, arrived)
    return [
        _turn(request, rights.get(request.pk, []), arrived.get(request.pk), since.get(request.pk))
        for request in requests
    ]


def _turn(request: Request, rights: list[Right], event: Event | None, since: datetime | None) -> Turn:
    state = RequestState(request.state)
    groups = [right.group.name for right in rights if right.group]
    why = f"{event.actor}: “{event.reason}”" if event is not None and event.reason else ""
    if state == RequestState.AWAITING_APPROVAL:
        why = f"A signature of {' and '.join(groups)} is missing" if groups else "An approver’s signature is missing"
    if state == RequestState.RUNNING:
        why = "Jobs have failed, or were refused, and nothing more is sent by itself"
    absent = dict.fromkeys(str(right.for_user) for right in rights if right.for_user)
    since = since or request.submitted_at or request.created_at
    return Turn(request, TODO.get(state, "Look at it"), why, since, tuple(absent))


def waits_since(requests: Iterable[Request], arrived: Mapping[int, Event]) -> dict[int, datetime]:
    """Return since when each of these requests waits for people: its arrival, or the first of its jobs that wait."""
    running = {
        request.pk: request.jobs_wait_since
        for request in requests
        if request.state == RequestState.RUNNING and request.jobs_wait_since
    }
    return {pk: event.at for pk, event in arrived.items()} | running


def arrivals(requests: Iterable[Request]) -> dict[int, Event]:
    """Return the event that brought each request into the state it is in, in one query."""
    states = {str(request.pk): request.state for request in requests}
    events = Event.objects.filter(
        target_type=Request._meta.label_lower, target_id__in=states, new__in=set(states.values())
    )
    return {int(e.target_id): e for e in events.order_by("id") if states[e.target_id] == e.new}
