"""Accepted stages: production continues without the jobs that did not complete."""

from collections.abc import Iterable
from datetime import datetime

from django.db import transaction

from apps.accounts.models import User
from apps.core.domain.events import publish
from apps.core.errors import InvalidTransition, NotAllowed
from apps.production.domain.actors import may
from apps.production.domain.reasons import checked_reason
from apps.production.enums import Actor, RequestState
from apps.production.models import Request, Stage, StageAcceptance


def acceptances_of(requests: Iterable[Request]) -> dict[int, StageAcceptance]:
    """Return the acceptances of these requests by primary key of the stage, in one query."""
    acceptances = StageAcceptance.objects.filter(stage__request__in=list(requests)).select_related(
        "stage"
    )
    return {
        acceptance.stage_id: acceptance
        for acceptance in acceptances.order_by("stage__request", "stage__position")
    }


def acceptance_of(request: Request, position: int) -> StageAcceptance | None:
    """Return the acceptance of the stage at this position, or None."""
    acceptances = StageAcceptance.objects.filter(stage__request=request, stage__position=position)
    return acceptances.select_related("stage").first()


@transaction.atomic
def record_acceptance(
    *, stage: Stage, requested: int, completed: int, by: User, at: datetime, reason: str
) -> StageAcceptance:
    """Accept a stage with its completed jobs.

    The caller locks the request and has checked that no other jobs follow. Raises `NotAllowed`,
    `InvalidFields` for a missing reason, `InvalidTransition` if it is not running or already
    accepted.
    """
    text = _checked(stage.request, by, reason)
    acceptance, created = StageAcceptance.objects.get_or_create(
        stage=stage,
        defaults={
            "jobs_asked": requested,
            "jobs_completed": completed,
            "reason": text,
            "at": at,
            "by": by.username,
        },
    )
    if not created:
        raise InvalidTransition(
            f"{stage.request}: {acceptance.by} already accepted stage {stage.name}."
        )
    _publish("request.stage_accepted", acceptance, by, at, text)
    return acceptance


@transaction.atomic
def withdraw_acceptance(
    *, request: Request, position: int, by: User, at: datetime, reason: str
) -> None:
    """Withdraw the acceptance of a stage: the request waits for its missing jobs again.

    Raises `NotAllowed`, `InvalidFields`, `InvalidTransition` if it is not running or not accepted.
    """
    current = (
        Request.objects.select_for_update(of=("self",))
        .select_related("experiment")
        .get(pk=request.pk)
    )
    text = _checked(current, by, reason)
    acceptance = acceptance_of(current, position)
    if acceptance is None:
        raise InvalidTransition(f"{request}: this stage is not accepted.")
    acceptance.stage.request = current
    _publish("request.stage_not_accepted", acceptance, by, at, text)
    acceptance.delete()


def _checked(request: Request, by: User, reason: str) -> str:
    if not may(by, Actor.OPERATOR, request):
        raise NotAllowed("Only approvers and shifters can accept a stage.")
    text = checked_reason(reason)
    if request.state != RequestState.RUNNING:
        raise InvalidTransition(
            f"{request} is “{request.get_state_display()}”. Only stages of running requests "
            "can be accepted."
        )
    return text


def _publish(kind: str, acceptance: StageAcceptance, by: User, at: datetime, reason: str) -> None:
    data = {
        "stage": acceptance.stage.position + 1,
        "name": acceptance.stage.name,
        "asked": acceptance.jobs_asked,
        "completed": acceptance.jobs_completed,
        "missing": acceptance.jobs_missing,
    }
    publish(kind=kind, target=acceptance.stage.request, by=by, at=at, reason=reason, data=data)
