"""The inbox: which requests wait for a user, what to do, since when; reminders go to the same users."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import F, Q

from apps.accounts.enums import Role
from apps.accounts.models import Membership, User
from apps.accounts.permissions import scope_of
from apps.core.models import Event
from apps.production.domain.approvals.requirements import (
    ApprovalFacts,
    Right,
    Rules,
    approval_facts,
    possible_signers,
    signer_at,
    slots_of,
)
from apps.production.enums import RequestState
from apps.production.models import Request, RequestQuerySet, Signature

_LIAISONS, _OPG = (Role.LIAISON,), (Role.APPROVER, Role.SHIFTER)
#: The roles responsible for the next step, by state. Drafts belong to their authors; required groups sign.
RESPONSIBLE: Mapping[RequestState, tuple[Role, ...]] = {
    RequestState.DRAFT: _LIAISONS,
    RequestState.CHANGES_REQUESTED: _LIAISONS,
    RequestState.ON_HOLD: _OPG,
    RequestState.DATA_QUALITY: _OPG,
    RequestState.RUNNING: _OPG,
}
NEXT_STEPS = {
    RequestState.AWAITING_APPROVAL: "Approve it, request changes or reject it",
    RequestState.CHANGES_REQUESTED: "Make the changes and submit again",
    RequestState.DRAFT: "Finish the draft and submit it",
    RequestState.ON_HOLD: "Release or cancel it",
    RequestState.RUNNING: "Retry its failed jobs or continue without them",
    RequestState.DATA_QUALITY: "Review its data quality and close it",
}


def waiting_in(state: RequestState) -> Q:
    """Filter requests in a state that need someone; a running request only if its jobs need attention."""
    waits = Q(state=state)
    return waits & Q(jobs_wait_since__isnull=False) if state == RequestState.RUNNING else waits


def waiting_for(user: User, at: datetime | None = None) -> RequestQuerySet[Request]:
    """Return the requests that wait for this user: to sign, change, complete, release or close.

    With `at`, delegations in force at that time count.
    """
    scope = scope_of(user)
    if not scope.roles:
        return Request.objects.none()
    found = Q(pk__in=signable(user, at))
    for state, roles in RESPONSIBLE.items():
        experiments = {experiment for role, experiment in scope.roles if role in roles}
        if experiments:
            found |= waiting_in(state) & (Q() if None in experiments else Q(experiment__in=experiments))
    others = Q(state=RequestState.DRAFT) & ~Q(created_by=user)
    return Request.objects.filter(found).exclude(others).order_by(F("deadline").asc(nulls_last=True), "pk")


def users_awaited(request: Request, at: datetime) -> tuple[list[str], list[str]]:
    """Return who is responsible for a waiting request: names of groups that must sign, and usernames with delegates.

    The request must be waiting and not a draft. Exactly these users have it in their inbox.
    """
    if request.state != RequestState.AWAITING_APPROVAL:
        return [], responsible_users(RequestState(request.state), request.experiment_id)
    slots = slots_of(request)
    missing = [slot for slot in slots if slot.signature is None] or slots
    found = possible_signers([slot.group for slot in missing], approval_facts(request), at)
    people = {right.user.username for rights in found.values() for right in rights}
    return [slot.group.name for slot in missing if slot.group], sorted(people)


def responsible_users(state: RequestState, experiment_id: int | None) -> list[str]:
    """Return the usernames responsible for a state; without an experiment, only roles for all experiments count."""
    here = Q(experiment=None) | Q(experiment=experiment_id)
    held = Membership.objects.filter(here, role__in=RESPONSIBLE[state], user__is_active=True)
    return sorted(set(held.values_list("user__username", flat=True)))


def signable(user: User, at: datetime | None, among: Iterable[int] | None = None) -> dict[int, list[Right]]:
    """Return the requests that this user can sign, with the rights to do so, in a fixed number of queries.

    `among` limits the requests. Requests that do not differ in anything the rights depend on are evaluated once.
    """
    if not scope_of(user).roles:
        return {}
    waiting = Request.objects.visible_to(user).filter(state=RequestState.AWAITING_APPROVAL)
    if among is not None:
        waiting = waiting.filter(pk__in=list(among))
    rows = list(
        waiting.values_list(
            "pk", "experiment_id", "workflow__type_id", "created_by_id", "submitted_by_id", "editor_ids"
        )
    )
    signed: dict[int, set[int | None]] = {row[0]: set() for row in rows}
    live = Signature.objects.filter(request__in=signed, withdrawn_at=None).order_by()
    for request, group in live.values_list("request_id", "group_id"):
        signed[request].add(group)
    rules, signer = Rules(), signer_at(user, at)
    known: dict[tuple[int, int, frozenset[int], frozenset[int | None]], list[Right]] = {}
    found = {}
    for pk, experiment, kind, author, submitter, editors in rows:
        requesters = frozenset({author, submitter, *editors} & signer.people)
        alike = (experiment, kind, requesters, frozenset(signed[pk]))
        if alike not in known:
            facts = ApprovalFacts(pk, *alike[:3])
            groups = rules.groups_for(facts)
            missing = [group for group in groups if (group.pk if group else None) not in signed[pk]]
            rights = (signer.right(group, facts) for group in missing or groups)
            known[alike] = [right for right in rights if right is not None]
        if known[alike]:
            found[pk] = known[alike]
    return found


@dataclass(frozen=True)
class InboxItem:
    """A request that waits for a user: what to do, why, on behalf of whom, and since when."""

    request: Request
    todo: str
    why: str
    since: datetime
    for_users: tuple[str, ...] = ()


def inbox_items(requests: Iterable[Request], user: User, at: datetime) -> list[InboxItem]:
    """Return what this user has to do for each request, in the order given."""
    requests, items = list(requests), []
    allowed, arrived = signable(user, at, [request.pk for request in requests]), arrivals(requests)
    waiting = waiting_since(requests, arrived)
    for request in requests:
        state, event, rights = RequestState(request.state), arrived.get(request.pk), allowed.get(request.pk, [])
        why = f"{event.actor}: “{event.reason}”" if event is not None and event.reason else ""
        if state == RequestState.AWAITING_APPROVAL:
            groups = [right.group.name for right in rights if right.group]
            why = f"Signature of {' and '.join(groups) or 'an approver'} missing"
        elif state == RequestState.RUNNING:
            why = "Jobs failed or were rejected, and will not be retried automatically"
        absent = dict.fromkeys(str(right.for_user) for right in rights if right.for_user)
        since = waiting.get(request.pk) or request.submitted_at or request.created_at
        items.append(InboxItem(request, NEXT_STEPS.get(state, "Review it"), why, since, tuple(absent)))
    return items


def waiting_since(requests: Iterable[Request], arrived: Mapping[int, Event]) -> dict[int, datetime]:
    """Return since when each request waits: since it entered its state, or since its jobs need attention."""
    running = {
        request.pk: request.jobs_wait_since
        for request in requests
        if request.state == RequestState.RUNNING and request.jobs_wait_since
    }
    return {pk: event.at for pk, event in arrived.items()} | running


def arrivals(requests: Iterable[Request]) -> dict[int, Event]:
    """Return the event that brought each request into its current state, in one query."""
    states = {str(request.pk): request.state for request in requests}
    events = Event.objects.filter(
        target_type=Request._meta.label_lower, target_id__in=states, new__in=set(states.values())
    )
    return {int(e.target_id): e for e in events.order_by("id") if states[e.target_id] == e.new}
