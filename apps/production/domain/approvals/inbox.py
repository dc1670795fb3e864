"""The inbox: the requests that wait for a user, the next step of each, and since when it waits.

Reminders go to the same users.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain

from django.db.models import BooleanField, Case, F, Q, Value, When
from django.urls import reverse

from apps.accounts.models import Membership, User
from apps.accounts.permissions import scope_of
from apps.core.models import Event
from apps.production.domain.approvals.requirements import (
    ApprovalFacts,
    ApprovalRules,
    Right,
    approval_facts,
    possible_signers,
    signer_at,
    slots_for,
    slots_of,
    slots_to_sign,
)
from apps.production.domain.approvals.waits import WAIT_KINDS, urgency_key
from apps.production.domain.forecast import forecast_of, last_stage
from apps.production.domain.outlook import find_hindrances
from apps.production.enums import (
    EDITABLE,
    IN_PRODUCTION,
    NOT_STARTED,
    AttentionKind,
    RequestState,
    Verb,
)
from apps.production.models import (
    Attention,
    QueueEntry,
    Request,
    RequestQuerySet,
    Signature,
)
from apps.production.permissions import may_operate, may_prioritise, may_reschedule

#: The next step of a request that needs a change although its jobs have started.
_CHANGE_IN_PRODUCTION = "Fix the cause, or tell the OPG whether to continue without these jobs"

#: Label and target of the button that opens the form to start a request.
_START_BUTTON = (f"{Verb.START.label}…", f"?do={Verb.START}#do")


def _has_left_queue(request: Request) -> bool:
    """Whether a request is past the queue, so that a priority no longer brings it forward."""
    is_held_in_queue = (
        request.state == RequestState.ON_HOLD and request.held_from == RequestState.QUEUED
    )
    return request.state in IN_PRODUCTION and not is_held_in_queue


def waiting_for(user: User, at: datetime | None = None) -> RequestQuerySet[Request]:
    """Return the requests that wait for this user: for a signature, a change or another next step.

    Those with the earliest deadline come first, drafts last: nobody else waits for them. With `at`,
    delegations in force at that time count.
    """
    scope = scope_of(user)
    if not scope.roles:
        return Request.objects.none()

    condition = Q(pk__in=rights_to_sign(user, at))
    for experiments, waits in _responsibilities(scope.roles).items():
        states = [wait for wait in waits if wait in RequestState]
        kinds = [wait for wait in waits if wait in AttentionKind]
        with_attention = Attention.objects.filter(kind__in=kinds)
        if None in experiments:
            of_experiments = Q()
        else:
            of_experiments = Q(experiment__in=experiments)
        condition |= of_experiments & (
            Q(state__in=states) | Q(pk__in=with_attention.values("request"))
        )

    drafts_of_others = Q(state=RequestState.DRAFT) & ~Q(created_by=user)
    requests = Request.objects.filter(condition).exclude(drafts_of_others)
    is_draft = Case(
        When(state=RequestState.DRAFT, then=Value(True)),
        default=Value(False),
        output_field=BooleanField(),
    )
    return requests.order_by(is_draft, F("deadline").asc(nulls_last=True), "pk")


def _responsibilities(
    roles: Iterable[tuple[str, int | None]],
) -> dict[frozenset[int | None], list[str]]:
    """Return the states and kinds of attention for which a user with these roles is responsible.

    They are grouped by the experiments they concern; None stands for all experiments.
    """
    waits: dict[frozenset[int | None], list[str]] = {}
    for wait, kind in WAIT_KINDS.items():
        experiment_pks = set()
        for role, experiment_pk in roles:
            if role in kind.roles:
                experiment_pks.add(experiment_pk)
        if experiment_pks:
            waits.setdefault(frozenset(experiment_pks), []).append(wait)
    return waits


@dataclass(frozen=True)
class Wait:
    """Why a request waits: its state or its kind of attention, since when, and the next step."""

    kind: RequestState | AttentionKind
    since: datetime
    why: str
    todo: str


def next_step(request: Request, wait: RequestState | AttentionKind, waits_for: str = "") -> str:
    """Return the next step of a waiting request, for inbox, pages, notifications and reminders.

    `waits_for` is what its jobs wait for, such as `samweb is up`, if that is down.
    """
    if wait == AttentionKind.IDLE and waits_for:
        if request.state == RequestState.QUEUED:
            return f"Choose its cluster now: its jobs go out when {waits_for}"
        if request.state == RequestState.RUNNING:
            return f"Start its jobs when {waits_for}, or put it on hold with the reason"
    if wait == AttentionKind.NEEDS_CHANGE and request.state not in NOT_STARTED:
        return _CHANGE_IN_PRODUCTION
    if wait == AttentionKind.LATE and _has_left_queue(request):
        return _step_of_late(request)
    return WAIT_KINDS[wait].next_step


def first_in_queue() -> int | None:
    """Return the primary key of the request with rank 1; None while the queue is empty."""
    entries = QueueEntry.objects.filter(is_queued=True).order_by("-sort_key", "tie", "pk")
    return entries.values_list("pk", flat=True).first()


def is_next_in_queue(request: Request, first_pk: int | None) -> bool:
    """Whether a queued request is first, so that no priority brings it forward."""
    return request.state == RequestState.QUEUED and request.pk == first_pk


def step_for(
    user: User,
    request: Request,
    wait: RequestState | AttentionKind,
    step: str,
    *,
    first_pk: int | None = None,
) -> str:
    """Return a next step as this user takes it: of two ways to help a late request, their own.

    A user who cannot take it reads who does. `first_pk` is the primary key of the request that is
    first in the queue.
    """
    if wait in (AttentionKind.STUCK, AttentionKind.IDLE) and not may_operate(user, request):
        return f"Approvers and shifters {step[:1].lower()}{step[1:]}"
    if wait != AttentionKind.LATE or step != WAIT_KINDS[wait].next_step:
        return step
    if is_next_in_queue(request, first_pk):
        return _step_of_next(user, request)
    if may_prioritise(user, request):
        return "Raise its priority, or ask its liaisons to postpone its deadline"
    if may_reschedule(user, request):
        return "Postpone its deadline, or ask an approver to raise its priority"
    return step


def _step_of_next(user: User, request: Request) -> str:
    """Return the next step of a late request that is first in the queue."""
    if may_operate(user, request):
        return "It is next in the queue: start it, or ask its liaisons to postpone its deadline"
    if may_reschedule(user, request):
        return "It is next in the queue: postpone its deadline, or ask the OPG to start it"
    return "It is next in the queue: the OPG can start it, a liaison postpone its deadline"


def _step_of_late(request: Request) -> str:
    """Return the next step of a late request that a higher priority no longer helps."""
    forecast = forecast_of(request)
    stage = last_stage(forecast.stages) if forecast else ""
    holds = f"holds {stage}, which ends last" if stage else "it waits for"
    return f"See what {holds}; its liaisons can postpone the deadline"


def step_of_attention(request: Request, kind: AttentionKind, at: datetime) -> str:
    """Return the next step of a request that needs attention, as of this time."""
    waits_for = ""
    if kind == AttentionKind.IDLE:
        waits_for = find_hindrances([request], at).waits_for.get(request.pk, "")
    return next_step(request, kind, waits_for)


def waits_of(requests: Iterable[Request], at: datetime) -> dict[int, list[Wait]]:
    """Return the waits of each request by primary key, most urgent first.

    The number of queries is fixed.
    """
    requests = list(requests)
    waits: dict[int, list[Wait]] = {request.pk: [] for request in requests}

    arrived = find_arrivals(requests)
    for request in requests:
        if request.state not in WAIT_KINDS:
            continue
        event = arrived.get(request.pk)
        if event:
            since = event.at
        else:
            since = request.submitted_at or request.created_at
        why = ""
        if event is not None and event.reason:
            why = f"{event.actor}: “{event.reason}”"
        state = RequestState(request.state)
        waits[request.pk].append(Wait(state, since, why, next_step(request, state)))

    marks = list(Attention.objects.filter(request__in=requests))
    by_pk = {request.pk: request for request in requests}
    idle = [by_pk[mark.request_id] for mark in marks if mark.kind == AttentionKind.IDLE]
    waits_for = find_hindrances(idle, at).waits_for if idle else {}
    for mark in marks:
        kind = AttentionKind(mark.kind)
        why = f"{kind.label.capitalize()}: {mark.text}"
        request = by_pk[mark.request_id]
        step = next_step(request, kind, waits_for.get(request.pk, ""))
        waits[request.pk].append(Wait(kind, mark.since, why, step))

    for waits_of_request in waits.values():
        waits_of_request.sort(key=lambda wait: urgency_key(wait.kind))
    return waits


def users_awaited(
    request: Request, wait: RequestState | AttentionKind, at: datetime
) -> tuple[list[str], list[str]]:
    """Return who is responsible for a waiting request.

    These are the names of the groups that must sign, and usernames, including delegates. The
    request must be waiting and not a draft. Exactly these users have it in their inbox.
    """
    if wait != RequestState.AWAITING_APPROVAL:
        return [], responsible_users(wait, request.experiment_id)
    to_sign = slots_to_sign(slots_of(request))
    people: set[str] = set()
    for rights in possible_signers(
        [slot.group for slot in to_sign], approval_facts(request), at
    ).values():
        people.update(right.user.username for right in rights)
    return [slot.group.name for slot in to_sign if slot.group], sorted(people)


def responsible_users(wait: RequestState | AttentionKind, experiment_id: int | None) -> list[str]:
    """Return the usernames responsible for a wait.

    Without an experiment, only roles for all experiments count.
    """
    is_for_experiment = Q(experiment=None) | Q(experiment=experiment_id)
    memberships = Membership.objects.filter(
        is_for_experiment, role__in=WAIT_KINDS[wait].roles, user__is_active=True
    )
    return sorted(set(memberships.values_list("user__username", flat=True)))


def rights_to_sign(
    user: User, at: datetime | None, among: Iterable[int] | None = None
) -> dict[int, list[Right]]:
    """Return the rights of this user to sign, by request, in a fixed number of queries.

    Requests without rights are left out. `among` limits the requests. Requests that are equal in
    everything that the rights depend on are evaluated once.
    """
    if not scope_of(user).roles:
        return {}
    waiting = Request.objects.visible_to(user).filter(state=RequestState.AWAITING_APPROVAL)
    if among is not None:
        waiting = waiting.filter(pk__in=list(among))
    requests = waiting.select_related("workflow").only(
        "experiment_id", "workflow__type_id", "created_by_id", "submitted_by_id", "editor_ids"
    )
    signatures: dict[int, list[Signature]] = {request.pk: [] for request in requests}
    live = Signature.objects.filter(request__in=signatures, withdrawn_at=None).order_by()
    for signature in live.only("request_id", "group_id"):
        signatures[signature.request_id].append(signature)

    rules = ApprovalRules()
    signer = signer_at(user, at)
    rights_of_equals: dict[tuple[ApprovalFacts, frozenset[int | None]], list[Right]] = {}
    signable_requests = {}
    for request in requests:
        facts = approval_facts(request)
        facts = replace(facts, requesters=facts.requesters & signer.people)
        signed = frozenset(signature.group_id for signature in signatures[request.pk])
        if (facts, signed) not in rights_of_equals:
            slots = slots_for(facts, rules=rules, signatures=signatures[request.pk], signer=signer)
            rights = [slot.mine for slot in slots_to_sign(slots) if slot.mine]
            rights_of_equals[facts, signed] = rights
        if rights := rights_of_equals[facts, signed]:
            signable_requests[request.pk] = rights
    return signable_requests


@dataclass(frozen=True)
class NextButton:
    """The button for a wait: its label and target."""

    label: str
    url: str


@dataclass(frozen=True)
class InboxItem:
    """A request that waits for a user.

    It has the next step, its button, the reasons why the request waits, and since when, and the
    users on whose behalf the user acts. `wait` is the most urgent one, None if the request waits
    for nothing; `other_waits` are those after it.
    """

    request: Request
    todo: str
    action: NextButton
    reasons: tuple[str, ...]
    since: datetime
    for_users: tuple[str, ...] = ()
    wait: RequestState | AttentionKind | None = None
    other_waits: tuple[RequestState | AttentionKind, ...] = ()

    @property
    def why(self) -> str:
        """All reasons as one text."""
        return ". ".join(self.reasons)


@dataclass(frozen=True)
class InboxPart:
    """Items of a group with the same next step and the same first reason."""

    todo: str
    reason: str
    items: list[InboxItem]

    @property
    def is_shared(self) -> bool:
        """Whether step and reason stand once above several items, not beside each."""
        return len(self.items) > 1 and self.reason != ""

    @property
    def rows(self) -> list[tuple[InboxItem, str]]:
        """Each item with the reasons that stand beside it."""
        start = 1 if self.is_shared else 0
        return [(item, ". ".join(item.reasons[start:])) for item in self.items]


@dataclass(frozen=True)
class InboxGroup:
    """Items that wait for the same, in the order of the inbox, below a heading.

    `todo` is their next step, which differs for some if their state differs. `elsewhere` counts the
    requests that wait for this too, and for something more urgent first.
    """

    heading: str
    todo: str
    items: list[InboxItem]
    to_sign: bool
    elsewhere: int

    @property
    def has_reasons(self) -> bool:
        """Whether an item has a reason, so that the column is not empty."""
        return any(item.reasons for item in self.items)

    @property
    def parts(self) -> list[InboxPart]:
        """Its items by next step and first reason, the part with the first item first."""
        parts: dict[tuple[str, str], InboxPart] = {}
        for item in self.items:
            reason = item.reasons[0] if item.reasons else ""
            part = parts.setdefault((item.todo, reason), InboxPart(item.todo, reason, []))
            part.items.append(item)
        return list(parts.values())


def group_items(items: Iterable[InboxItem]) -> list[InboxGroup]:
    """Return the groups that have items, most urgent first."""
    by_wait: dict[RequestState | AttentionKind | None, list[InboxItem]] = {}
    elsewhere: Counter[RequestState | AttentionKind | None] = Counter()
    for item in items:
        by_wait.setdefault(item.wait, []).append(item)
        elsewhere.update(item.other_waits)
    groups = []
    for wait, kind in WAIT_KINDS.items():
        if wait in by_wait:
            items_of_wait = by_wait[wait]
            to_sign = wait == RequestState.AWAITING_APPROVAL
            todo = items_of_wait[0].todo
            if any(item.todo != todo for item in items_of_wait):
                todo = kind.next_step
            groups.append(InboxGroup(kind.heading, todo, items_of_wait, to_sign, elsewhere[wait]))
    if others := by_wait.get(None):
        groups.append(InboxGroup("Others", others[0].todo, others, to_sign=False, elsewhere=0))
    return groups


def inbox_items(requests: Iterable[Request], user: User, at: datetime) -> list[InboxItem]:
    """Return the next step of this user for each request, in the same order.

    The requests should be read with `submitted_by`.
    """
    requests = list(requests)
    rights = rights_to_sign(user, at, [request.pk for request in requests])
    waits = waits_of(requests, at)
    scope = scope_of(user)
    first_pk = None
    if any(wait.kind == AttentionKind.LATE for wait in chain.from_iterable(waits.values())):
        first_pk = first_in_queue()
    items = []
    for request in requests:
        own_roles = set()
        for role, experiment_pk in scope.roles:
            if experiment_pk in (None, request.experiment_id):
                own_roles.add(role)
        own_waits = []
        for wait in waits[request.pk]:
            if request.pk in rights or own_roles.intersection(WAIT_KINDS[wait.kind].roles):
                own_waits.append(wait)
        own_rights = rights.get(request.pk, [])
        items.append(_item(request, user, own_rights, own_waits or waits[request.pk], first_pk))
    return items


def action_for(
    request: Request,
    wait: RequestState | AttentionKind | None,
    user: User,
    *,
    first_pk: int | None = None,
) -> NextButton:
    """Return the button with which this user takes the next step of a request.

    `first_pk` is the primary key of the request that is first in the queue.
    """
    if wait == RequestState.AWAITING_APPROVAL:
        return NextButton("Decide", f"{reverse('production:desk')}?at={request.key}")
    if wait in EDITABLE:
        if wait == RequestState.DRAFT:
            label = "Continue draft"
        else:
            label = "Make changes"
        return NextButton(label, reverse("production:request-edit", args=[request.key]))

    if wait is None:
        return NextButton("Open", request.get_absolute_url())
    kind = WAIT_KINDS[wait]
    if wait == AttentionKind.TEST_FAILED and request.state == RequestState.ON_HOLD:
        kind = WAIT_KINDS[RequestState.ON_HOLD]
    label, target = kind.button_label, kind.button_target
    if wait == AttentionKind.IDLE and request.state == RequestState.QUEUED:
        label, target = _START_BUTTON
    elif wait == AttentionKind.NEEDS_CHANGE and request.state in NOT_STARTED:
        edit_url = reverse("production:request-edit", args=[request.key])
        return NextButton("Make changes", f"{edit_url}?check=1#checks")
    elif wait == AttentionKind.LATE:
        label, target = _button_of_late(request, user, first_pk)
    return NextButton(label, request.get_absolute_url() + target)


def _button_of_late(request: Request, user: User, first_pk: int | None) -> tuple[str, str]:
    """Return label and target of the button for a late request: what can still help it."""
    if is_next_in_queue(request, first_pk) and may_operate(user, request):
        return _START_BUTTON
    is_ahead = not _has_left_queue(request)
    if is_ahead and may_prioritise(user, request):
        return "Set priority…", "?do=priority#do"
    if may_reschedule(user, request):
        return "Deadline or class…" if is_ahead else "Postpone deadline…", "?do=reschedule#do"
    return "Open", ""


def _item(
    request: Request, user: User, rights: list[Right], waits: list[Wait], first_pk: int | None
) -> InboxItem:
    if not waits:
        since = request.submitted_at or request.created_at
        return InboxItem(request, "Review it", action_for(request, None, user), (), since)
    groups = []
    for right in rights:
        if right.group:
            groups.append(right.group.name)
    missing = f"Signature of {' and '.join(groups) or 'an approver'} missing"
    reasons = []
    for wait in waits:
        if wait.kind == RequestState.AWAITING_APPROVAL:
            reasons.append(missing)
            if request.submitted_by:
                reasons.append(f"Submitted by {request.submitted_by}")
        elif wait.why:
            reasons.append(wait.why.removesuffix("."))
    absent = dict.fromkeys(str(right.for_user) for right in rights if right.for_user)
    top = waits[0]
    return InboxItem(
        request,
        step_for(user, request, top.kind, top.todo, first_pk=first_pk),
        action_for(request, top.kind, user, first_pk=first_pk),
        tuple(reasons),
        top.since,
        tuple(absent),
        top.kind,
        tuple(wait.kind for wait in waits[1:]),
    )


def find_arrivals(requests: Iterable[Request]) -> dict[int, Event]:
    """Return the event that brought each request into its current state, in one query."""
    states = {str(request.pk): request.state for request in requests}
    events = Event.objects.filter(
        target_type=Request._meta.label_lower, target_id__in=states, new__in=set(states.values())
    )
    newest = {}
    for event in events.order_by("id"):
        if states[event.target_id] == event.new:
            newest[int(event.target_id)] = event
    return newest
