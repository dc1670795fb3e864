"""What a user can do with a request, and which form is open."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from apps.accounts.models import User
from apps.core.models import Event
from apps.production.domain.actors import may
from apps.production.domain.approvals.requirements import SignatureSlot
from apps.production.domain.content.changes import may_change
from apps.production.domain.content.model import RequestContent
from apps.production.domain.lifecycle.guards import KnownAnswers, refusal_of
from apps.production.domain.lifecycle.moves import moves_for
from apps.production.domain.lifecycle.transitions import Transition, transitions_from
from apps.production.domain.lineage.links import may_rearrange
from apps.production.domain.lineage.templates import may_manage
from apps.production.domain.priority.prospects import ranks_by_class
from apps.production.domain.requests.reschedule import open_class_request
from apps.production.enums import BEFORE_PRODUCTION, Actor, RequestState, Verb
from apps.production.models import Request
from apps.production.permissions import may_edit, may_prioritise, may_reschedule
from apps.quality.domain.data_quality import CLOSING_CHECK, DataQuality
from apps.submission.domain.dispatch.returns import has_only_planned_jobs

#: The value of `?do=` that opens the priority form.
PRIORITY = "priority"
#: The value of `?do=` that opens the form for a later deadline and a requested class.
RESCHEDULE = "reschedule"


@dataclass(frozen=True)
class Actions:
    """What a user can do with a request; `step` is the move whose form is open.

    `explains_return` is whether the page of a running request offers to say why it cannot return
    to the queue, `why_no_return` the reason once the user asks for it.
    """

    moves: list[Transition]
    step: Transition | None
    sets_priority: bool
    by_class: list[tuple[str, int]]
    reschedules: bool
    class_request: Event | None
    may_edit: bool
    may_prioritise: bool
    may_reschedule: bool
    may_clone: bool
    may_keep: bool
    may_rearrange: bool
    explains_return: bool = False
    why_no_return: str = ""

    def class_url(self, request: Request) -> str:
        """Return where the user sets or requests a priority class; empty if they may do neither."""
        if self.may_prioritise:
            return f"{request.get_absolute_url()}?do={PRIORITY}#do"
        if self.may_reschedule:
            return f"{request.get_absolute_url()}?do={RESCHEDULE}#do"
        return ""

    def start_url(self, request: Request) -> str:
        """Return where the user starts production; empty if they may not."""
        if any(move.verb == Verb.START for move in self.moves):
            return f"{request.get_absolute_url()}?do={Verb.START}#do"
        return ""


def actions_on(
    request: Request,
    content: RequestContent,
    user: User,
    *,
    slots: Iterable[SignatureSlot],
    events: Sequence[Event],
    quality: DataQuality | None,
    open_form: str,
    at: datetime,
) -> Actions:
    """Return what a user can do.

    `open_form` is the verb of the move whose form is open, `PRIORITY` or `RESCHEDULE`.
    """
    answers: KnownAnswers = {}
    if quality is not None:
        answers = {CLOSING_CHECK: quality.refusal_to_close}
    moves = moves_for(user, request, at, slots=slots, answers=answers)
    prioritises = may_prioritise(user, request)
    reschedules = may_reschedule(user, request)
    sets_priority = open_form == PRIORITY and prioritises
    return Actions(
        moves=moves,
        step=next((move for move in moves if move.verb == open_form), None),
        sets_priority=sets_priority,
        by_class=ranks_by_class(request, at=at) if sets_priority else [],
        reschedules=open_form == RESCHEDULE and reschedules,
        class_request=open_class_request(events),
        may_edit=may_edit(user, request) and may_change(request.state, content),
        may_prioritise=prioritises,
        may_reschedule=reschedules,
        may_clone=may(user, Actor.LIAISON, request),
        may_keep=may_manage(user, request.experiment_id),
        may_rearrange=request.state in BEFORE_PRODUCTION and may_rearrange(user, request),
        explains_return=_explains_return(request, moves),
        why_no_return=_why_no_return(request, user) if open_form == Verb.RETURN_TO_QUEUE else "",
    )


def _explains_return(request: Request, moves: Iterable[Transition]) -> bool:
    """Return whether users would miss the move that returns a running request to the queue.

    That is before any job was submitted; later, none expects it.
    """
    verbs = {move.verb for move in moves}
    is_operated = request.state == RequestState.RUNNING and Verb.COMPLETE in verbs
    if not is_operated or Verb.RETURN_TO_QUEUE in verbs:
        return False
    return has_only_planned_jobs(request)


def _why_no_return(request: Request, user: User) -> str:
    """Return why a running request cannot return to the queue; empty for other requests."""
    for step in transitions_from(request.state, Verb.RETURN_TO_QUEUE):
        if may(user, step.actor, request):
            return refusal_of(step, request)
    return ""
