"""The states of a request and the one table of its moves. Who may make them is worked out in `permissions`."""

from collections.abc import Mapping
from dataclasses import dataclass

from django.db import models


class RequestState(models.TextChoices):
    """Where a request stands."""

    DRAFT = "draft", "draft"
    SUBMITTED = "submitted", "submitted"
    CHECKING = "checking", "being checked"
    CHANGES_ASKED = "changes_asked", "changes asked"
    AWAITING_APPROVAL = "awaiting_approval", "awaiting approval"
    APPROVED = "approved", "approved"
    QUEUED = "queued", "queued"
    TESTING = "testing", "in test"
    RUNNING = "running", "running"
    HELD = "held", "held"
    COMPLETING = "completing", "completing"
    DATA_QUALITY = "data_quality", "data quality"
    DONE = "done", "done"
    DONE_PARTIAL = "done_partial", "done in part"
    REJECTED = "rejected", "rejected"
    CANCELLED = "cancelled", "cancelled"
    SUPERSEDED = "superseded", "superseded"


_S = RequestState

#: A liaison writes while the request is here; everywhere else it is what was submitted.
EDITABLE = frozenset({_S.DRAFT, _S.CHANGES_ASKED})
#: Signed, or about to be: a material change goes back to be checked and signed again, by the move “change”.
CHANGEABLE = (_S.AWAITING_APPROVAL, _S.APPROVED, _S.QUEUED)
#: What may be changed there while the signatures hold. The deadline may only become later.
IMMATERIAL = frozenset({"title", "purpose", "priority_reason", "deadline"})
#: Here arguments may be changed whose declaration names the state as `editable_in`; in these alone, nothing else.
BY_ARGUMENT = frozenset({_S.AWAITING_APPROVAL, _S.APPROVED, _S.QUEUED, _S.TESTING, _S.RUNNING, _S.HELD})
#: It has its signatures, and jobs may run for it.
SIGNED = (
    _S.APPROVED,
    _S.QUEUED,
    _S.TESTING,
    _S.RUNNING,
    _S.HELD,
    _S.COMPLETING,
    _S.DATA_QUALITY,
    _S.DONE,
    _S.DONE_PARTIAL,
)
#: It has ended. Nothing follows, but that another request takes the place of one that is done.
CLOSED = frozenset({_S.DONE, _S.DONE_PARTIAL, _S.REJECTED, _S.CANCELLED, _S.SUPERSEDED})
#: An approver sets the priority while it matters.
PRIORITISED = frozenset({_S.AWAITING_APPROVAL, _S.APPROVED, _S.QUEUED, _S.TESTING, _S.RUNNING, _S.HELD})
#: From here it can be held, and goes back.
HOLDABLE = (_S.QUEUED, _S.TESTING, _S.RUNNING)
#: The OPG works on it.
IN_PRODUCTION = frozenset({_S.TESTING, _S.RUNNING, _S.HELD, _S.COMPLETING, _S.DATA_QUALITY})


#: No job has been sent for it: it can still be split, or combined with others.
UNSENT = (
    _S.DRAFT,
    _S.SUBMITTED,
    _S.CHECKING,
    _S.CHANGES_ASKED,
    _S.AWAITING_APPROVAL,
    _S.APPROVED,
    _S.QUEUED,
)


class LinkKind(models.TextChoices):
    """How a later request came out of an earlier one; the label is what the earlier one became."""

    COMBINED = "combined", "combined into"
    SPLIT = "split", "split into"


class RequestedPriority(models.TextChoices):
    """How urgent the experiment says it is; the OPG sets the class that counts, one of the same."""

    LOW = "low", "low"
    NORMAL = "normal", "normal"
    HIGH = "high", "high"
    URGENT = "urgent", "urgent"


#: These need a reason.
ABOVE_NORMAL = frozenset({RequestedPriority.HIGH, RequestedPriority.URGENT})


class Verb(models.TextChoices):
    """What is done to a request's state; the value is also its address, the label its button."""

    SUBMIT = "submit", "Submit"
    CHECK = "check", "Check"
    CHANGE = "change", "Change"
    PASS = "pass", "Pass on"
    FAIL = "fail", "Give back"
    APPROVE = "approve", "Approve"
    ASK_FOR_CHANGES = "ask-for-changes", "Ask for changes"
    REJECT = "reject", "Reject"
    QUEUE = "queue", "Put in the queue"
    TEST = "test", "Start the test"
    FAIL_TEST = "fail-test", "Test failed"
    START = "start", "Start production"
    HOLD = "hold", "Hold"
    RELEASE = "release", "Release"
    COMPLETE = "complete", "Jobs have ended"
    EXAMINE = "examine", "Look at data quality"
    RESUME = "resume", "Resume"
    DONE = "done", "Mark as done"
    DONE_PARTIAL = "done-partial", "Done in part"
    CANCEL = "cancel", "Cancel"
    SUPERSEDE = "supersede", "Supersede"


class Who(models.TextChoices):
    """Who may make a move; `permissions.PREDICATES` has one function for each."""

    LIAISON = "liaison", "a liaison of the experiment"
    APPROVER = "approver", "an approver who is not the requester"
    SIGNER = "signer", "who may sign for a group that must, and is not the requester"
    DECIDER = "decider", "an approver or who may sign, and is not the requester"
    OPERATOR = "operator", "an approver or shifter of the OPG"
    OPERATOR_OR_PORTAL = "operator_or_portal", "an approver or shifter of the OPG, or the portal itself"
    EITHER = "either", "a liaison of the experiment or an approver"
    PORTAL = "portal", "the portal itself"


#: Moves that come along with what a person writes, not by a button of their own.
WRITTEN = frozenset({Verb.CHANGE})

#: The name under which the portal itself moves requests.
PORTAL = "opsportal"


@dataclass(frozen=True)
class Transition:
    """One move: from where to where, by which verb, by whom, whether a reason is needed, and what else must hold.

    `guard` is the name of a function of `guards`, which says why the move cannot be made now.
    """

    old: RequestState
    verb: Verb
    new: RequestState
    who: Who
    reason_needed: bool = False
    guard: str = ""


def _open() -> list[RequestState]:
    return [state for state in _S if state not in CLOSED and state != _S.DRAFT]


#: Every move there is. Services, pages, API, admin, docs/requests.md and tests all read this table.
TRANSITIONS: tuple[Transition, ...] = (
    Transition(_S.DRAFT, Verb.SUBMIT, _S.SUBMITTED, Who.LIAISON),
    Transition(_S.CHANGES_ASKED, Verb.SUBMIT, _S.SUBMITTED, Who.LIAISON),
    Transition(_S.SUBMITTED, Verb.CHECK, _S.CHECKING, Who.PORTAL),
    Transition(_S.CHECKING, Verb.PASS, _S.AWAITING_APPROVAL, Who.PORTAL),
    Transition(_S.CHECKING, Verb.FAIL, _S.CHANGES_ASKED, Who.PORTAL, reason_needed=True),
    Transition(_S.AWAITING_APPROVAL, Verb.APPROVE, _S.APPROVED, Who.SIGNER),
    Transition(_S.AWAITING_APPROVAL, Verb.ASK_FOR_CHANGES, _S.CHANGES_ASKED, Who.DECIDER, reason_needed=True),
    Transition(_S.AWAITING_APPROVAL, Verb.REJECT, _S.REJECTED, Who.DECIDER, reason_needed=True),
    *(Transition(old, Verb.CHANGE, _S.SUBMITTED, Who.LIAISON) for old in CHANGEABLE),
    Transition(_S.APPROVED, Verb.QUEUE, _S.QUEUED, Who.PORTAL),
    Transition(_S.QUEUED, Verb.TEST, _S.TESTING, Who.OPERATOR_OR_PORTAL),
    Transition(_S.TESTING, Verb.FAIL_TEST, _S.QUEUED, Who.OPERATOR, reason_needed=True),
    Transition(_S.QUEUED, Verb.START, _S.RUNNING, Who.OPERATOR_OR_PORTAL),
    Transition(_S.TESTING, Verb.START, _S.RUNNING, Who.OPERATOR_OR_PORTAL),
    *(Transition(old, Verb.HOLD, _S.HELD, Who.OPERATOR_OR_PORTAL, reason_needed=True) for old in HOLDABLE),
    *(Transition(_S.HELD, Verb.RELEASE, new, Who.OPERATOR, guard="held_from_there") for new in HOLDABLE),
    Transition(_S.RUNNING, Verb.COMPLETE, _S.COMPLETING, Who.OPERATOR_OR_PORTAL),
    Transition(_S.COMPLETING, Verb.EXAMINE, _S.DATA_QUALITY, Who.OPERATOR_OR_PORTAL),
    Transition(_S.COMPLETING, Verb.RESUME, _S.RUNNING, Who.OPERATOR, reason_needed=True),
    Transition(_S.DATA_QUALITY, Verb.RESUME, _S.RUNNING, Who.OPERATOR, reason_needed=True),
    Transition(_S.DATA_QUALITY, Verb.DONE, _S.DONE, Who.OPERATOR_OR_PORTAL, guard="output_is_good"),
    Transition(
        _S.DATA_QUALITY,
        Verb.DONE_PARTIAL,
        _S.DONE_PARTIAL,
        Who.OPERATOR_OR_PORTAL,
        reason_needed=True,
        guard="output_is_good",
    ),
    Transition(_S.DRAFT, Verb.CANCEL, _S.CANCELLED, Who.EITHER),
    *(Transition(old, Verb.CANCEL, _S.CANCELLED, Who.EITHER, reason_needed=True) for old in _open()),
    *(
        Transition(old, Verb.SUPERSEDE, _S.SUPERSEDED, Who.EITHER, reason_needed=True, guard="has_successor")
        for old in [*_open(), _S.DONE, _S.DONE_PARTIAL]
    ),
)

#: The same as `core.workflow.move` wants it: from each state, the states that follow.
MOVES: Mapping[str, frozenset[str]] = {
    state: frozenset(t.new for t in TRANSITIONS if t.old == state) for state in RequestState
}


def transitions_from(state: str, verb: Verb) -> list[Transition]:
    """Return the moves that `verb` may make from `state`; where there are several, guards tell them apart."""
    return [t for t in TRANSITIONS if t.old == state and t.verb == verb]


def actor_of(verb: Verb) -> Who:
    """Return who makes moves of this verb: the same from every state."""
    return next(t.who for t in TRANSITIONS if t.verb == verb)
