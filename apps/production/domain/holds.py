"""Holds: what may have no new jobs just now, why, and since when. The queue keeps its order meanwhile."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from apps.accounts.enums import Role
from apps.accounts.models import Experiment, User
from apps.accounts.permissions import scope_of
from apps.core.domain.events import events_of, publish
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed
from apps.production.domain.reasons import checked_reason
from apps.production.enums import CLOSED, EDITABLE, RequestState
from apps.production.models import Hold, Request, Stage

#: How many lifted holds the page remembers.
PAST = 20


@dataclass(frozen=True)
class Held:
    """What holds a request or stage: level in words, why, by whom and since when."""

    level: str
    what: str
    reason: str
    by: str
    at: datetime | None


def hold_of(request: Request, stage: Stage | None = None) -> Held | None:
    """Return the widest hold that forbids new jobs of this request, or of this stage of it; None where it may go on."""
    return next(iter(holds_over(request, [] if stage is None else [stage])), None)


def holds_over(request: Request, stages: Iterable[Stage] | None = None) -> list[Held]:
    """Return what holds a request and the stages given, else all of its stages; the widest first."""
    found = _over(request, request.stages.all() if stages is None else stages)
    held = [_held(hold) for hold in found]
    if request.state == RequestState.ON_HOLD:
        wide = sum(not hold.stage_id for hold in found)
        held.insert(wide, _held_by_state(request))
    return held


def held_stages(request: Request, stages: Iterable[Stage]) -> dict[int, Held]:
    """Return what lets no new jobs of these stages of a request start, the widest of each, by primary key; one query.

    The request's own state is left aside.
    """
    named = list(stages)
    found = _over(request, named)
    over = {stage.pk: [hold for hold in found if hold.stage_id in (None, stage.pk)] for stage in named}
    return {pk: _held(holds[0]) for pk, holds in over.items() if holds}


def open_holds() -> QuerySet[Hold]:
    """Return the holds in force, the oldest first."""
    return Hold.objects.filter(lifted_at=None).select_related("experiment", "stage__request", "by").order_by("at", "pk")


def visible_holds(user: User) -> QuerySet[Hold]:
    """Return the holds in force that this person may see: those of everything, and of own experiments."""
    return _visible(open_holds(), user)


def past_holds(user: User) -> QuerySet[Hold]:
    """Return the holds lifted last that this person may see."""
    lifted = Hold.objects.exclude(lifted_at=None).select_related("experiment", "stage__request", "by", "lifted_by")
    return _visible(lifted, user).order_by("-lifted_at", "-pk")[:PAST]


def stage_named(user: User, *, key: str, number: int | None) -> Stage | None:
    """Return the stage of this number, from 1, of the request of this key; None where neither is given.

    Raises `InvalidFields` where there is none that the person may see: half of a name would hold more than was meant.
    """
    if not key and number is None:
        return None
    stages = Stage.objects.select_related("request__experiment")
    stage = stages.filter(request__key=key, position=(number or 0) - 1).first()
    if stage is None or not scope_of(user).sees(stage.request.experiment_id):
        raise InvalidFields({"stage": ["There is no such stage: give the request's number and the stage's."]})
    return stage


def wide_holds(user: User) -> list[Held]:
    """Return the holds of everything and of whole experiments that this person may see, for banners."""
    return [_held(hold) for hold in visible_holds(user).filter(stage=None)]


def held_experiments() -> set[int | None]:
    """Return the experiments that are held as a whole; None is all production."""
    return set(Hold.objects.filter(lifted_at=None, stage=None).values_list("experiment_id", flat=True))


def requests_under(hold: Hold) -> QuerySet[Request]:
    """Return the requests under way that a hold of all production, or of an experiment, is over."""
    under = Request.objects.exclude(state__in=CLOSED | EDITABLE)
    return under.filter(experiment=hold.experiment_id) if hold.experiment_id else under


def sees_hold(user: User, hold: Hold) -> bool:
    """Tell whether a person may be told of a hold: who is of its experiment, or has any role if it is of everything."""
    scope, experiment = scope_of(user), experiment_of(hold)
    return scope.sees(experiment) if experiment else bool(scope.roles)


def may_hold(user: User, experiment_id: int | None) -> bool:
    """Tell whether this person may hold, and let go on, an experiment; with None: everything."""
    scope = scope_of(user)
    return scope.has(Role.APPROVER, experiment_id) or scope.has(Role.SHIFTER, experiment_id)


def may_hold_some(user: User) -> bool:
    """Tell whether there is anything that this person may hold."""
    return scope_of(user).has_anywhere(Role.APPROVER) or scope_of(user).has_anywhere(Role.SHIFTER)


def may_lift(user: User, hold: Hold) -> bool:
    return may_hold(user, experiment_of(hold))


@transaction.atomic
def place_hold(
    *, by: User, at: datetime, reason: str, experiment: Experiment | None = None, stage: Stage | None = None
) -> Hold:
    """Let no new jobs start for everything, an experiment, or one stage; nothing that runs is ended.

    Raises `NotAllowed`, `InvalidFields` for a missing reason, `InvalidTransition` where it is held already or the
    stage's request is not under way.
    """
    if not may_hold(by, stage.request.experiment_id if stage else experiment.pk if experiment else None):
        raise NotAllowed("Only an approver or a shifter of the OPG may hold this.")
    if stage and stage.request.state in CLOSED | EDITABLE:
        raise InvalidTransition(f"{stage.request} is “{stage.request.get_state_display()}”: no job of it can start.")
    hold = Hold(experiment=None if stage else experiment, stage=stage, reason=checked_reason(reason), by=by, at=at)
    try:
        with transaction.atomic():
            hold.save()
    except IntegrityError:
        raise InvalidTransition("It is held already: whoever wants to may add to that reason elsewhere.") from None
    publish(kind="hold.placed", target=target_of(hold), by=by, at=at, reason=hold.reason, data=_data(hold))
    return hold


@transaction.atomic
def lift_hold(*, hold: Hold, by: User, at: datetime, reason: str = "") -> Hold:
    """Let what was held go on. Raises `NotAllowed`, `InvalidTransition` where somebody has lifted it already."""
    if not may_lift(by, hold):
        raise NotAllowed("Only an approver or a shifter of the OPG may lift this hold.")
    text = checked_reason(reason, needed=False)
    if Hold.objects.filter(pk=hold.pk, lifted_at=None).update(lifted_at=at, lifted_by=by) != 1:
        raise InvalidTransition("This hold was lifted already.")
    hold.lifted_at, hold.lifted_by = at, by
    publish(kind="hold.lifted", target=target_of(hold), by=by, at=at, reason=text, data=_data(hold))
    return hold


def level_of(hold: Hold) -> str:
    """Return the level of a hold in a word: `global`, `experiment` or `stage`."""
    return "stage" if hold.stage_id else "experiment" if hold.experiment_id else "global"


def what_of(hold: Hold) -> str:
    """Say in words what is held."""
    if hold.stage:
        return f"stage {hold.stage.name or hold.stage.position + 1} of {hold.stage.request.key}"
    return f"all of {hold.experiment}" if hold.experiment else "all production"


def experiment_of(hold: Hold) -> int | None:
    """Return the experiment that a hold is of; None where it is of everything."""
    return hold.stage.request.experiment_id if hold.stage else hold.experiment_id


def target_of(hold: Hold) -> Request | Hold:
    """Return in whose timeline events of a hold are: the request's of a stage, else its own."""
    return hold.stage.request if hold.stage else hold


def _over(request: Request, stages: Iterable[Stage]) -> list[Hold]:
    """Return the holds in force over a request or these stages of it, the widest first."""
    of = Q(experiment=None, stage=None) | Q(experiment=request.experiment_id) | Q(stage__in=list(stages))
    return sorted(open_holds().filter(of), key=lambda hold: (_order(hold), hold.pk))


def _held(hold: Hold) -> Held:
    return Held(level_of(hold), what_of(hold), hold.reason, str(hold.by), hold.at)


def _held_by_state(request: Request) -> Held:
    event = events_of(request).filter(kind="request.hold").last()
    return Held(
        "request", request.key, event.reason if event else "", event.actor if event else "", event.at if event else None
    )


def _visible(holds: QuerySet[Hold], user: User) -> QuerySet[Hold]:
    scope = scope_of(user)
    if scope.sees_all:
        return holds
    mine = Q(experiment__in=scope.experiments) | Q(stage__request__experiment__in=scope.experiments)
    return holds.filter(mine | Q(experiment=None, stage=None))


def _order(hold: Hold) -> int:
    return ("global", "experiment", "stage").index(level_of(hold))


def _data(hold: Hold) -> dict[str, object]:
    return {"hold": hold.pk, "level": level_of(hold), "what": what_of(hold)}
