"""Reading requests: what one holds, the queue and its ranks, and what waits for whom."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import F, Prefetch, Q, QuerySet

from apps.accounts.permissions import scope_of
from apps.core.models import Event
from apps.production.content import FIELDS, STAGE_FIELDS, RequestContent, StageContent
from apps.production.enums import RequestState, Who
from apps.production.models import Request, RequestQuerySet, Stage
from apps.production.permissions import may
from apps.production.turns import MOVERS, signable, waits_in
from apps.production.workflow_types import workflow_of
from apps.production.workflows.arguments import Argument, Value
from apps.production.workflows.declaration import CORE
from apps.services.selectors import Row, board


def with_people(requests: QuerySet[Request]) -> QuerySet[Request]:
    """Load along with many requests what a row of a list names."""
    # No more joins: PostgreSQL plans four in 2 ms, and the ten of `with_stages` in 30, unless they are of one row.
    joined = requests.select_related("experiment", "created_by", "submitted_by", "approved_by")
    return joined.prefetch_related("closed_by", "workflow__type", "superseded_by")


def with_stages(requests: QuerySet[Request]) -> QuerySet[Request]:
    """Load stages, their services and the people along with requests, in a fixed number of queries."""
    people = ("experiment", "created_by", "submitted_by", "approved_by", "closed_by")
    others = ("workflow__type", "superseded_by", "cloned_from")
    stages = Stage.objects.order_by("position").prefetch_related("services")
    return requests.select_related(*people, *others).prefetch_related(Prefetch("stages", stages))


def content_of(request: Request, *, services: bool = True) -> RequestContent:
    """Return what is written in a request; where that is not needed, without the services of its stages."""
    stages = tuple(
        StageContent(
            kind=stage.kind,
            arguments=stage.arguments,
            services=tuple(service.slug for service in stage.services.all()) if services else (),
            **{name: getattr(stage, name) for name in STAGE_FIELDS},
        )
        for stage in request.stages.all()
    )
    return RequestContent(
        workflow=workflow_of(request.workflow),
        arguments=request.arguments,
        stages=stages,
        **{name: getattr(request, name) for name in FIELDS},
    )


@dataclass(frozen=True)
class Ingredient:
    """One argument as a page shows it."""

    title: str
    text: str


def ingredients_of(request: Request) -> list[Ingredient]:
    """Return what the workflow type asks of the request as a whole, as it is written."""
    return _ingredients(workflow_of(request.workflow).arguments, request.arguments)


def stages_shown(request: Request) -> list[tuple[Stage, list[Ingredient]]]:
    """Return the stages, each with what its kind asks for beside what every stage has."""
    workflow = workflow_of(request.workflow)
    return [(s, _ingredients(workflow.stage(s.kind).arguments, s.arguments)) for s in request.stages.all()]


def _ingredients(declared: Iterable[Argument], values: Mapping[str, Value]) -> list[Ingredient]:
    given = [(argument, values.get(argument.name)) for argument in declared if argument.name not in CORE]
    return [Ingredient(argument.title, argument.write(value)) for argument, value in given if value is not None]


def waiting_for(user: Any, at: datetime | None = None) -> RequestQuerySet[Request]:
    """Return the requests on which this person has the next move: to sign, to change, to finish writing, to go on.

    With a moment, also those that somebody who is away has handed over then.
    """
    scope = scope_of(user)
    if not scope.roles:
        return Request.objects.none()
    found = Q(pk__in=signable(user, at))
    for state, roles in MOVERS.items():
        if any(scope.has_anywhere(role) for role in roles):
            found |= waits_in(state, at) & _of_roles(user, roles)
    others = Q(state=RequestState.DRAFT) & ~Q(created_by=user)
    return Request.objects.filter(found).exclude(others).order_by(F("deadline").asc(nulls_last=True), "pk")


def _of_roles(user: Any, roles: Sequence[str]) -> Q:
    held = {experiment for role, experiment in scope_of(user).roles if role in roles}
    return Q() if None in held else Q(experiment__in=held)


@dataclass(frozen=True)
class Need:
    """A service that a request needs, its state now, and which of the stages need it."""

    row: Row
    stages: tuple[str, ...]


def needs_of(request: Request, at: datetime) -> list[Need]:
    """Return the services that a request's stages need, with their states now."""
    users: dict[int, list[str]] = {}
    for stage in request.stages.all():
        for service in stage.services.all():
            users.setdefault(service.pk, []).append(stage.name or str(stage.position + 1))
    if not users:
        return []
    return [Need(row, tuple(users[row.service.pk])) for row in board(at, days=0) if row.service.pk in users]


@dataclass(frozen=True)
class Step:
    """One step of the bar that shows where a request stands: `done`, `now` or `ahead`."""

    label: str
    place: str
    note: str = ""


def steps_of(request: Request) -> list[Step]:
    """Return the steps of a request's life, with the one it is in; one that ended early ends with that."""
    state = RequestState(request.state)
    if state in _ENDS:
        passed = [("Draft", True), ("Approval", request.submitted_at), ("Queue", request.approved_at)]
        steps = [Step(label, "done") for label, reached in passed if reached]
        return [*steps, Step(state.label.capitalize(), "now")]
    place, note = _PLACES[state]
    labels = ("Draft", "Approval", "Queue", "Production", "Data quality", "Done")
    return [
        Step(label, "done" if i < place else "now" if i == place else "ahead", note if i == place else "")
        for i, label in enumerate(labels)
    ]


_ENDS = {RequestState.REJECTED, RequestState.CANCELLED, RequestState.SUPERSEDED}
_PLACES = {
    RequestState.DRAFT: (0, ""),
    RequestState.SUBMITTED: (1, "waits to be checked"),
    RequestState.CHECKING: (1, "is checked"),
    RequestState.CHANGES_ASKED: (1, "changes asked"),
    RequestState.AWAITING_APPROVAL: (1, "waits for the OPG"),
    RequestState.APPROVED: (2, ""),
    RequestState.QUEUED: (2, ""),
    RequestState.TESTING: (3, "in test"),
    RequestState.RUNNING: (3, ""),
    RequestState.HELD: (3, "held"),
    RequestState.COMPLETING: (3, "last jobs have ended"),
    RequestState.DATA_QUALITY: (4, ""),
    RequestState.DONE: (5, ""),
    RequestState.DONE_PARTIAL: (5, "in part"),
}


@dataclass(frozen=True)
class Standing:
    """Where a request stands in words: the answer first, then what comes next; the last event that moved it."""

    answer: str
    next_step: str
    last: Event | None


def standing_of(request: Request, events: Sequence[Event], user: Any, *, to_sign: bool) -> Standing:
    """Say what this person, or whom else, the request waits for; `to_sign` tells whether a signature of the person."""
    state, experiment = RequestState(request.state), request.experiment
    last = next((event for event in reversed(events) if event.new == state), None)
    if state == RequestState.DRAFT:
        words = (
            "Not submitted yet.",
            "Complete it and submit it."
            if may(user, Who.LIAISON, request)
            else f"A liaison of {experiment} writes it.",
        )
    elif state == RequestState.AWAITING_APPROVAL and to_sign:
        words = ("Waiting for you.", "Approve it, ask for changes or reject it.")
    elif state == RequestState.CHANGES_ASKED:
        who = "you" if may(user, Who.LIAISON, request) else f"a liaison of {experiment}"
        words = (f"Waiting for {who}.", "Change it and submit it again.")
    else:
        words = _WORDS.get(state) or (f"{state.label.capitalize()}.", "Nothing more happens to it.")
    return Standing(*words, last=last)


_WORDS = {
    RequestState.SUBMITTED: ("Being checked.", "In a moment it waits for the OPG, or comes back."),
    RequestState.CHECKING: ("Being checked.", "In a moment it waits for the OPG, or comes back."),
    RequestState.AWAITING_APPROVAL: (
        "Waiting for signatures.",
        "Whoever made or submitted it cannot approve it.",
    ),
    RequestState.APPROVED: ("Approved.", "It goes to the queue."),
    RequestState.QUEUED: ("In the queue.", "The OPG produces requests by rank."),
    RequestState.TESTING: ("In test.", "Production starts when the test has passed."),
    RequestState.RUNNING: ("In production.", "Its output is checked when its jobs have ended."),
    RequestState.HELD: ("Held.", "No new job is started for it until the OPG releases it."),
    RequestState.COMPLETING: ("Its jobs have ended.", "What they wrote is looked at next."),
    RequestState.DATA_QUALITY: (
        "Produced.",
        "It is done once every check of its data quality has passed or is waived.",
    ),
}


@dataclass(frozen=True)
class Totals:
    """A request's sums over its stages, of what is filled in: jobs, and wall seconds if each job ran to its limit."""

    jobs: int
    wall_seconds: int


def totals_of(request: Request) -> Totals:
    stages = request.stages.all()
    return Totals(
        jobs=sum(stage.jobs or 0 for stage in stages),
        wall_seconds=sum((stage.jobs or 0) * (stage.wall_seconds or 0) for stage in stages),
    )
