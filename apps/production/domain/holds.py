"""Holds: no new jobs start for a stage, a request, an experiment or all production.

The queue keeps its order.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from apps.accounts.enums import Role
from apps.accounts.models import Experiment, User
from apps.accounts.permissions import is_operator, scope_of
from apps.core.domain.events import events_of, publish
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed
from apps.production.domain.reasons import checked_reason
from apps.production.enums import CLOSED, EDITABLE, PORTAL, RequestState
from apps.production.models import Hold, Request, Stage

#: How many lifted holds the page shows.
PAST = 20
_LEVELS = ("global", "experiment", "stage")


@dataclass(frozen=True)
class ActiveHold:
    """An active hold on a request or stage: level, subject, reason, user and time."""

    level: str
    what: str
    reason: str
    by: str
    at: datetime | None


def hold_of(request: Request, stage: Stage | None = None) -> ActiveHold | None:
    """Return the widest hold on a request or on one of its stages; None without a hold."""
    return next(iter(holds_over(request, [] if stage is None else [stage])), None)


def holds_over(request: Request, stages: Iterable[Stage] | None = None) -> list[ActiveHold]:
    """Return the holds on a request and on these stages (default: all), widest first."""
    holds = _active_holds(request, request.stages.all() if stages is None else stages)
    active = [_as_active_hold(hold) for hold in holds]
    if request.state == RequestState.ON_HOLD:
        event = events_of(request).filter(kind="request.hold").last()
        reason, by, at = (event.reason, event.actor, event.at) if event else ("", "", None)
        wider = sum(not hold.stage_id for hold in holds)
        active.insert(wider, ActiveHold("request", request.key, reason, by, at))
    return active


def stage_holds(request: Request, stages: Iterable[Stage]) -> dict[int, ActiveHold]:
    """Return the widest hold on each of these stages by primary key, in one query.

    The state of the request is not considered.
    """
    stages = list(stages)
    holds = _active_holds(request, stages)
    widest = {}
    for stage in stages:
        over_stage = [hold for hold in holds if hold.stage_id in (None, stage.pk)]
        if over_stage:
            widest[stage.pk] = _as_active_hold(over_stage[0])
    return widest


def open_holds() -> QuerySet[Hold]:
    return (
        Hold.objects.filter(lifted_at=None)
        .select_related("experiment", "stage__request", "by")
        .order_by("at", "pk")
    )


def visible_holds(user: User) -> QuerySet[Hold]:
    """Return the active holds that a user can see: global ones and holds of their experiments."""
    return _filter_visible(open_holds(), user)


def past_holds(user: User) -> QuerySet[Hold]:
    """Return the last lifted holds that a user can see."""
    lifted = Hold.objects.exclude(lifted_at=None).select_related(
        "experiment", "stage__request", "by", "lifted_by"
    )
    return _filter_visible(lifted, user).order_by("-lifted_at", "-pk")[:PAST]


def stage_named(user: User, *, key: str, number: int | None) -> Stage | None:
    """Return the stage with this number, from 1, of a request.

    None if neither key nor number is set. Raises `InvalidFields` if only one of them is set, or if
    the user cannot see such a stage.
    """
    if not key and number is None:
        return None
    stages = Stage.objects.select_related("request__experiment")
    stage = stages.filter(request__key=key, position=(number or 0) - 1).first()
    if stage is None or not scope_of(user).sees(stage.request.experiment_id):
        raise InvalidFields(
            {
                "stage": [
                    "Stage not found. Enter the key of the request and the number of the stage."
                ]
            }
        )
    return stage


def wide_holds(user: User) -> list[ActiveHold]:
    """Return the active holds on all production and on visible experiments, for banners."""
    return [_as_active_hold(hold) for hold in visible_holds(user).filter(stage=None)]


def experiments_on_hold() -> set[int | None]:
    """Return the experiments on hold as a whole. None stands for all production."""
    return set(
        Hold.objects.filter(lifted_at=None, stage=None).values_list("experiment_id", flat=True)
    )


def requests_under(hold: Hold) -> QuerySet[Request]:
    """Return the submitted, open requests affected by a hold on an experiment or all production."""
    under = Request.objects.exclude(state__in=CLOSED | EDITABLE)
    if not hold.experiment_id:
        return under
    return under.filter(experiment=hold.experiment_id)


def sees_hold(user: User, hold: Hold) -> bool:
    """Whether a user can see a hold.

    Members of its experiment can see it; a global hold is visible to every user with a role.
    """
    scope = scope_of(user)
    experiment = hold_experiment_id(hold)
    return scope.sees(experiment) if experiment else bool(scope.roles)


def may_hold(user: User, experiment_id: int | None) -> bool:
    """Whether a user may place and lift holds on an experiment, or with None on all production."""
    return is_operator(user, experiment_id)


def may_hold_some(user: User) -> bool:
    return scope_of(user).has_anywhere(Role.APPROVER) or scope_of(user).has_anywhere(Role.SHIFTER)


def may_lift(user: User, hold: Hold) -> bool:
    return may_hold(user, hold_experiment_id(hold))


@transaction.atomic
def place_hold(
    *,
    by: User,
    at: datetime,
    reason: str,
    experiment: Experiment | None = None,
    stage: Stage | None = None,
) -> Hold:
    """Stop new jobs of all production, an experiment, or one stage. Running jobs continue.

    Raises `NotAllowed`, `InvalidFields` for a missing reason, `InvalidTransition` if it is already
    on hold or if the request of the stage is not open.
    """
    if not may_hold(
        by, stage.request.experiment_id if stage else experiment.pk if experiment else None
    ):
        raise NotAllowed("Only approvers and shifters can place this hold.")
    if stage and _is_closed(stage):
        state = stage.request.get_state_display()
        raise InvalidTransition(f"{stage.request} is “{state}”. Its stages cannot be put on hold.")
    hold = Hold(
        experiment=None if stage else experiment,
        stage=stage,
        reason=checked_reason(reason),
        by=by,
        at=at,
    )
    if not _store_once(hold):
        raise InvalidTransition("This is already on hold.")
    _publish("hold.placed", hold, by, at, hold.reason)
    return hold


@transaction.atomic
def hold_stage(*, stage: Stage, at: datetime, reason: str, people: Sequence[str]) -> Hold | None:
    """Stop new jobs of a stage, as the portal itself, and tell these users that it is their turn.

    Return None if the stage is on hold already, or if its request is not open.
    """
    hold = Hold(stage=stage, reason=checked_reason(reason), at=at)
    if _is_closed(stage) or not _store_once(hold):
        return None
    _publish("hold.placed", hold, PORTAL, at, hold.reason, people=people)
    return hold


@transaction.atomic
def hold_all_production(*, at: datetime, reason: str) -> Hold | None:
    """Stop new jobs of all production, as the portal itself.

    Return None if all production is on hold already.
    """
    hold = Hold(reason=checked_reason(reason), at=at)
    if not _store_once(hold):
        return None
    _publish("hold.placed", hold, PORTAL, at, hold.reason)
    return hold


def _is_closed(stage: Stage) -> bool:
    return stage.request.state in CLOSED | EDITABLE


def _store_once(hold: Hold) -> bool:
    """Store a hold. Return False if there is one already, even one placed at the same time."""
    try:
        with transaction.atomic():
            hold.save()
    except IntegrityError:
        return False
    return True


@transaction.atomic
def lift_hold(*, hold: Hold, by: User, at: datetime, reason: str = "") -> Hold:
    """Lift a hold. Raises `NotAllowed`, `InvalidTransition` if it is already lifted."""
    if not may_lift(by, hold):
        raise NotAllowed("Only approvers and shifters can lift this hold.")
    text = checked_reason(reason, needed=False)
    if Hold.objects.filter(pk=hold.pk, lifted_at=None).update(lifted_at=at, lifted_by=by) != 1:
        raise InvalidTransition("This hold is already lifted.")
    hold.lifted_at = at
    hold.lifted_by = by
    _publish("hold.lifted", hold, by, at, text)
    return hold


def hold_level(hold: Hold) -> str:
    return _LEVELS[2 if hold.stage_id else 1 if hold.experiment_id else 0]


def hold_subject(hold: Hold) -> str:
    if hold.stage:
        return f"stage {hold.stage.name or hold.stage.position + 1} of {hold.stage.request.key}"
    if not hold.experiment:
        return "all production"
    return f"all of {hold.experiment}"


def hold_experiment_id(hold: Hold) -> int | None:
    """Return the primary key of a hold's experiment; None for a global hold."""
    if hold.stage:
        return hold.stage.request.experiment_id
    return hold.experiment_id


def event_target(hold: Hold) -> Request | Hold:
    """Return the target of a hold's events: the request of its stage, or else the hold."""
    return hold.stage.request if hold.stage else hold


def _active_holds(request: Request, stages: Iterable[Stage]) -> list[Hold]:
    """Return the active holds on a request or these stages, widest first."""
    of = (
        Q(experiment=None, stage=None)
        | Q(experiment=request.experiment_id)
        | Q(stage__in=list(stages))
    )
    return sorted(
        open_holds().filter(of), key=lambda hold: (_LEVELS.index(hold_level(hold)), hold.pk)
    )


def _as_active_hold(hold: Hold) -> ActiveHold:
    return ActiveHold(hold_level(hold), hold_subject(hold), hold.reason, hold.author, hold.at)


def _filter_visible(holds: QuerySet[Hold], user: User) -> QuerySet[Hold]:
    scope = scope_of(user)
    if scope.sees_all:
        return holds
    mine = Q(experiment__in=scope.experiment_keys)
    mine |= Q(stage__request__experiment__in=scope.experiment_keys)
    return holds.filter(mine | Q(experiment=None, stage=None))


def _publish(
    kind: str,
    hold: Hold,
    by: User | str,
    at: datetime,
    reason: str,
    *,
    people: Sequence[str] = (),
) -> None:
    data: dict[str, Any] = {
        "hold": hold.pk,
        "level": hold_level(hold),
        "what": hold_subject(hold),
    }
    if people:
        data["people"] = list(people)
    publish(kind=kind, target=event_target(hold), by=by, at=at, reason=reason, data=data)
