"""Reading requests: what one holds, the queue and its ranks, and what waits for whom."""

from collections.abc import Sequence
from dataclasses import dataclass

from apps.accounts.models import User
from apps.core.models import Event
from apps.production.domain.actors import may
from apps.production.enums import Actor, RequestState
from apps.production.models import Request


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
    RequestState.CHANGES_REQUESTED: (1, "changes requested"),
    RequestState.AWAITING_APPROVAL: (1, "waits for the OPG"),
    RequestState.APPROVED: (2, ""),
    RequestState.QUEUED: (2, ""),
    RequestState.TESTING: (3, "testing"),
    RequestState.RUNNING: (3, ""),
    RequestState.ON_HOLD: (3, "on hold"),
    RequestState.COMPLETING: (3, "last jobs have ended"),
    RequestState.DATA_QUALITY: (4, ""),
    RequestState.DONE: (5, ""),
    RequestState.DONE_PARTIAL: (5, "partial"),
}


@dataclass(frozen=True)
class Standing:
    """Where a request stands in words: the answer first, then what comes next; the last event that moved it."""

    answer: str
    next_step: str
    last: Event | None


def standing_of(request: Request, events: Sequence[Event], user: User, *, to_sign: bool) -> Standing:
    """Say what this person, or whom else, the request waits for; `to_sign` tells whether a signature of the person."""
    state, experiment = RequestState(request.state), request.experiment
    last = next((event for event in reversed(events) if event.new == state), None)
    if state == RequestState.DRAFT:
        words = (
            "Not submitted yet.",
            "Complete it and submit it."
            if may(user, Actor.LIAISON, request)
            else f"A liaison of {experiment} writes it.",
        )
    elif state == RequestState.AWAITING_APPROVAL and to_sign:
        words = ("Waiting for you.", "Approve it, request changes or reject it.")
    elif state == RequestState.CHANGES_REQUESTED:
        who = "you" if may(user, Actor.LIAISON, request) else f"a liaison of {experiment}"
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
    RequestState.TESTING: ("Testing.", "Production starts when the test has passed."),
    RequestState.RUNNING: ("In production.", "Its output is checked when its jobs have ended."),
    RequestState.ON_HOLD: ("On hold.", "No new jobs start until the OPG releases it."),
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
