"""The states of a request and the one table of its moves. Who may make them is worked out in `permissions`."""

from collections.abc import Mapping
from dataclasses import dataclass

from django.db import models


class RequestState(models.TextChoices):
    """Where a request stands."""

    DRAFT = "draft", "draft"
    SUBMITTED = "submitted", "awaiting approval"
    CHANGES_ASKED = "changes_asked", "changes asked"
    APPROVED = "approved", "approved"
    REJECTED = "rejected", "rejected"
    WITHDRAWN = "withdrawn", "withdrawn"
    DONE = "done", "done"


#: A liaison writes while the request is here; everywhere else it is what was submitted.
EDITABLE = frozenset({RequestState.DRAFT, RequestState.CHANGES_ASKED})
#: Nothing follows these.
CLOSED = frozenset({RequestState.REJECTED, RequestState.WITHDRAWN, RequestState.DONE})
#: An approver sets the priority while it matters.
PRIORITISED = frozenset({RequestState.SUBMITTED, RequestState.APPROVED})


class RequestedPriority(models.TextChoices):
    """How urgent the experiment says it is; the OPG sets the number that counts."""

    LOW = "low", "low"
    NORMAL = "normal", "normal"
    HIGH = "high", "high"
    URGENT = "urgent", "urgent"


#: These need a reason.
ABOVE_NORMAL = frozenset({RequestedPriority.HIGH, RequestedPriority.URGENT})


class Verb(models.TextChoices):
    """What a person does to a request's state; the value is also its address, the label its button."""

    SUBMIT = "submit", "Submit"
    APPROVE = "approve", "Approve"
    ASK_FOR_CHANGES = "ask-for-changes", "Ask for changes"
    REJECT = "reject", "Reject"
    WITHDRAW = "withdraw", "Withdraw"
    DONE = "done", "Mark as done"


class Who(models.TextChoices):
    """Who may make a move; `permissions.PREDICATES` has one function for each."""

    LIAISON = "liaison", "a liaison of the experiment"
    APPROVER = "approver", "an approver who is not the requester"


@dataclass(frozen=True)
class Transition:
    """One move: from where to where, by which verb, by whom, and whether a reason must be given."""

    old: RequestState
    verb: Verb
    new: RequestState
    who: Who
    reason_needed: bool = False


_S = RequestState

#: Every move there is. Services, pages, API, admin, docs/requests.md and tests all read this table.
TRANSITIONS: tuple[Transition, ...] = (
    Transition(_S.DRAFT, Verb.SUBMIT, _S.SUBMITTED, Who.LIAISON),
    Transition(_S.CHANGES_ASKED, Verb.SUBMIT, _S.SUBMITTED, Who.LIAISON),
    Transition(_S.SUBMITTED, Verb.APPROVE, _S.APPROVED, Who.APPROVER),
    Transition(_S.SUBMITTED, Verb.ASK_FOR_CHANGES, _S.CHANGES_ASKED, Who.APPROVER, reason_needed=True),
    Transition(_S.SUBMITTED, Verb.REJECT, _S.REJECTED, Who.APPROVER, reason_needed=True),
    Transition(_S.DRAFT, Verb.WITHDRAW, _S.WITHDRAWN, Who.LIAISON),
    Transition(_S.SUBMITTED, Verb.WITHDRAW, _S.WITHDRAWN, Who.LIAISON, reason_needed=True),
    Transition(_S.CHANGES_ASKED, Verb.WITHDRAW, _S.WITHDRAWN, Who.LIAISON, reason_needed=True),
    Transition(_S.APPROVED, Verb.WITHDRAW, _S.WITHDRAWN, Who.LIAISON, reason_needed=True),
    Transition(_S.APPROVED, Verb.DONE, _S.DONE, Who.APPROVER),
)

#: The same as `core.workflow.move` wants it: from each state, the states that follow.
MOVES: Mapping[str, frozenset[str]] = {
    state: frozenset(t.new for t in TRANSITIONS if t.old == state) for state in RequestState
}


def transition(state: str, verb: Verb) -> Transition | None:
    """Return the move that `verb` makes from `state`, if there is one."""
    return next((t for t in TRANSITIONS if t.old == state and t.verb == verb), None)


def actor_of(verb: Verb) -> Who:
    """Return who makes moves of this verb: the same from every state."""
    return next(t.who for t in TRANSITIONS if t.verb == verb)
