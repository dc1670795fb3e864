"""Stages that somebody took as they are, without the jobs that did not complete; who sends jobs says when one may."""

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
    """Return the stages of these requests that were taken as they are, by the stage's primary key, in one query."""
    rows = StageAcceptance.objects.filter(stage__request__in=list(requests)).select_related("stage")
    return {row.stage_id: row for row in rows.order_by("stage__request", "stage__position")}


def acceptance_of(request: Request, position: int) -> StageAcceptance | None:
    """Return how the stage at this position was taken, if it was."""
    rows = StageAcceptance.objects.filter(stage__request=request, stage__position=position)
    return rows.select_related("stage").first()


@transaction.atomic
def record_acceptance(
    *, stage: Stage, asked: int, completed: int, by: User, at: datetime, reason: str
) -> StageAcceptance:
    """Take a stage with the jobs that completed. The caller holds the request's row and knows that no others come.

    Raises `NotAllowed`, `InvalidFields` for a missing reason, `InvalidTransition` where it is not running, or taken.
    """
    text = _checked(stage.request, by, reason)
    row, created = StageAcceptance.objects.get_or_create(
        stage=stage,
        defaults={"jobs_asked": asked, "jobs_completed": completed, "reason": text, "at": at, "by": by.username},
    )
    if not created:
        raise InvalidTransition(f"{stage.request}: {row.by} has taken stage {stage.name} as it is already.")
    _tell("request.stage_accepted", row, by, at, text)
    return row


@transaction.atomic
def withdraw_acceptance(*, request: Request, position: int, by: User, at: datetime, reason: str) -> None:
    """Wait for the missing jobs of a stage again. What was sent of later stages meanwhile goes on.

    Raises `NotAllowed`, `InvalidFields`, `InvalidTransition` where it is not running, or not taken as it is.
    """
    current = Request.objects.select_for_update(of=("self",)).select_related("experiment").get(pk=request.pk)
    text = _checked(current, by, reason)
    row = acceptance_of(current, position)
    if row is None:
        raise InvalidTransition(f"{request}: this stage waits for all of its jobs already.")
    row.stage.request = current
    _tell("request.stage_not_accepted", row, by, at, text)
    row.delete()


def _checked(request: Request, by: User, reason: str) -> str:
    if not may(by, Actor.OPERATOR, request):
        raise NotAllowed("Only approvers and shifters can accept a stage.")
    text = checked_reason(reason)
    if request.state != RequestState.RUNNING:
        raise InvalidTransition(f"{request} is “{request.get_state_display()}”: only stages of a running one end so.")
    return text


def _tell(kind: str, row: StageAcceptance, by: User, at: datetime, reason: str) -> None:
    data = {
        "stage": row.stage.position + 1,
        "name": row.stage.name,
        "asked": row.jobs_asked,
        "completed": row.jobs_completed,
        "missing": row.jobs_missing,
    }
    publish(kind=kind, target=row.stage.request, by=by, at=at, reason=reason, data=data)
