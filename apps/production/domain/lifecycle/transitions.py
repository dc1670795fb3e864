"""The transition table of requests. `actors` decides who may make each move."""

from dataclasses import dataclass

from apps.production.enums import CHANGEABLE, CLOSED, HOLDABLE, Actor, RequestState, Verb

_S = RequestState


@dataclass(frozen=True)
class Transition:
    """A move: old and new state, verb, actor, whether a reason is required, and a guard.

    `guard` names a function in `guards` that returns why the move is not possible now.
    """

    old: RequestState
    verb: Verb
    new: RequestState
    actor: Actor
    reason_needed: bool = False
    guard: str = ""

    @property
    def is_start(self) -> bool:
        """Return whether jobs of the request are submitted from then on."""
        return self.verb in (Verb.TEST, Verb.START)


def _open_states() -> list[RequestState]:
    return [state for state in _S if state not in CLOSED and state != _S.DRAFT]


#: All moves. Domain functions, pages, API, admin, docs/requests.md and tests read this table.
TRANSITIONS: tuple[Transition, ...] = (
    Transition(_S.DRAFT, Verb.SUBMIT, _S.SUBMITTED, Actor.LIAISON),
    Transition(_S.CHANGES_REQUESTED, Verb.SUBMIT, _S.SUBMITTED, Actor.LIAISON),
    Transition(_S.SUBMITTED, Verb.CHECK, _S.CHECKING, Actor.PORTAL),
    Transition(_S.CHECKING, Verb.PASS, _S.AWAITING_APPROVAL, Actor.PORTAL),
    Transition(_S.CHECKING, Verb.RETURN, _S.CHANGES_REQUESTED, Actor.PORTAL, reason_needed=True),
    Transition(_S.AWAITING_APPROVAL, Verb.APPROVE, _S.APPROVED, Actor.SIGNER),
    Transition(
        _S.AWAITING_APPROVAL,
        Verb.REQUEST_CHANGES,
        _S.CHANGES_REQUESTED,
        Actor.DECIDER,
        reason_needed=True,
    ),
    Transition(_S.AWAITING_APPROVAL, Verb.REJECT, _S.REJECTED, Actor.DECIDER, reason_needed=True),
    Transition(_S.REJECTED, Verb.REOPEN, _S.SUBMITTED, Actor.DECIDER, reason_needed=True),
    *(Transition(old, Verb.CHANGE, _S.SUBMITTED, Actor.LIAISON) for old in CHANGEABLE),
    Transition(_S.APPROVED, Verb.QUEUE, _S.QUEUED, Actor.PORTAL),
    Transition(_S.QUEUED, Verb.TEST, _S.TESTING, Actor.OPERATOR_OR_PORTAL),
    Transition(_S.TESTING, Verb.FAIL_TEST, _S.QUEUED, Actor.OPERATOR, reason_needed=True),
    Transition(_S.QUEUED, Verb.START, _S.RUNNING, Actor.OPERATOR_OR_PORTAL),
    Transition(_S.TESTING, Verb.START, _S.RUNNING, Actor.OPERATOR_OR_PORTAL),
    Transition(
        _S.RUNNING,
        Verb.RETURN_TO_QUEUE,
        _S.QUEUED,
        Actor.OPERATOR,
        reason_needed=True,
        guard="has_no_jobs",
    ),
    *(
        Transition(old, Verb.HOLD, _S.ON_HOLD, Actor.OPERATOR_OR_PORTAL, reason_needed=True)
        for old in HOLDABLE
    ),
    *(
        Transition(_S.ON_HOLD, Verb.RELEASE, new, Actor.OPERATOR, guard="held_from_there")
        for new in HOLDABLE
    ),
    Transition(_S.RUNNING, Verb.COMPLETE, _S.COMPLETING, Actor.OPERATOR_OR_PORTAL),
    Transition(_S.COMPLETING, Verb.REVIEW, _S.DATA_QUALITY, Actor.OPERATOR_OR_PORTAL),
    Transition(_S.COMPLETING, Verb.RESUME, _S.RUNNING, Actor.OPERATOR, reason_needed=True),
    Transition(_S.DATA_QUALITY, Verb.RESUME, _S.RUNNING, Actor.OPERATOR, reason_needed=True),
    Transition(
        _S.DATA_QUALITY, Verb.DONE, _S.DONE, Actor.OPERATOR_OR_PORTAL, guard="output_is_good"
    ),
    Transition(
        _S.DATA_QUALITY,
        Verb.DONE_PARTIAL,
        _S.DONE_PARTIAL,
        Actor.OPERATOR_OR_PORTAL,
        reason_needed=True,
        guard="output_is_good",
    ),
    Transition(_S.DRAFT, Verb.CANCEL, _S.CANCELLED, Actor.LIAISON_OR_APPROVER),
    *(
        Transition(old, Verb.CANCEL, _S.CANCELLED, Actor.LIAISON_OR_APPROVER, reason_needed=True)
        for old in _open_states()
    ),
    *(
        Transition(
            old,
            Verb.SUPERSEDE,
            _S.SUPERSEDED,
            Actor.LIAISON_OR_APPROVER,
            reason_needed=True,
            guard="has_successor",
        )
        for old in [*_open_states(), _S.DONE, _S.DONE_PARTIAL]
    ),
)

#: The states that can follow each state, for `core.domain.workflow.move`.
MOVES: dict[str, frozenset[str]] = dict.fromkeys(RequestState, frozenset())
for _transition in TRANSITIONS:
    MOVES[_transition.old] |= {_transition.new}


def transitions_from(state: str, verb: Verb) -> list[Transition]:
    """Return the moves of `verb` from `state`. Guards distinguish several moves."""
    return [step for step in TRANSITIONS if step.old == state and step.verb == verb]


def actor_of(verb: Verb) -> Actor:
    """Return the actor of a verb, which is the same from every state."""
    return next(step.actor for step in TRANSITIONS if step.verb == verb)
