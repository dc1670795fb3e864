"""Files and events that stages read and wrote, as reported by jobs, and located outputs."""

from collections.abc import Mapping
from datetime import datetime

from django.db import transaction
from django.db.models import Count, Sum

from apps.accounts.models import User
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed
from apps.production.domain.actors import may
from apps.production.domain.work_start import record_work_start
from apps.production.enums import IN_PRODUCTION, Actor, RequestState
from apps.production.models import OutputReport, Request, Stage, StageCounts, StageLocation

QUANTITIES = ("files_in", "events_in", "files_out", "events_out")
MOST = 10**13
#: In these states, jobs may report and outputs may be marked as located.
REPORTABLE = IN_PRODUCTION | {RequestState.QUEUED}
#: An argument of type yes_no that states whether the output of the stage must be located.
MUST_BE_LOCATED = "catalogued"


@transaction.atomic
def report_output(
    *, stage: Stage, key: str, counts: Mapping[str, int | None], by: User, at: datetime
) -> tuple[OutputReport, bool]:
    """Store the counts of one job. Return the report and whether its key is new.

    A report with the same key is replaced. Raises `NotAllowed`, `InvalidTransition` if the request
    has no jobs in its state, `InvalidFields`.
    """
    _check_reporter(stage, by)
    key = key.strip()
    problems = {}
    if not key or len(key) > 200 or "\0" in key:
        problems["key"] = ["Enter a key of 1 to 200 characters, such as the job ID."]
    quantities = {name: counts.get(name) for name in QUANTITIES}
    for name, value in quantities.items():
        if value is not None and not 0 <= value <= MOST:
            problems[name] = [f"Enter a whole number from 0 to {MOST:,}."]
    if not problems and all(value is None for value in quantities.values()):
        problems["non_field_errors"] = [f"Enter at least one of: {', '.join(QUANTITIES)}."]
    if problems:
        raise InvalidFields(problems)

    record_work_start(request_pks=[stage.request_id], at=at)
    values = {**quantities, "by": by.username, "at": at, "counted": False}
    return OutputReport.objects.update_or_create(stage=stage, key=key, defaults=values)


def count_reports(*, at: datetime) -> int:
    """Update the counts of every stage with new reports, and return the number of stages."""
    uncounted = OutputReport.objects.filter(counted=False).order_by()
    stage_pks = list(uncounted.values_list("stage", flat=True).distinct())
    for stage_pk in stage_pks:
        _count_stage(stage_pk, at)
    return len(stage_pks)


@transaction.atomic
def _count_stage(stage_id: int, at: datetime) -> None:
    """Mark reports, then count the marked ones.

    A report that commits in between stays unmarked until the next run.
    """
    StageCounts.objects.get_or_create(stage_id=stage_id)
    StageCounts.objects.select_for_update().get(stage_id=stage_id)
    reports = OutputReport.objects.filter(stage_id=stage_id)
    reports.filter(counted=False).update(counted=True)
    sums = reports.filter(counted=True).aggregate(
        reports=Count("pk"), **{name: Sum(name) for name in QUANTITIES}
    )
    StageCounts.objects.filter(stage_id=stage_id).update(**sums, counted_at=at)


def counts_of(request: Request) -> dict[int, StageCounts]:
    """Return the counts of each stage with reports, by primary key of the stage."""
    return {
        counts.stage_id: counts for counts in StageCounts.objects.filter(stage__request=request)
    }


@transaction.atomic
def mark_located(*, stage: Stage, by: User, at: datetime, note: str = "") -> StageLocation:
    """Record that the output of a stage is in the catalogue. Repeating it changes nothing.

    Raises `NotAllowed`, `InvalidTransition` if the request has no output in its state,
    `InvalidFields`.
    """
    _check_reporter(stage, by)
    text = note.strip()
    if len(text) > 500 or "\0" in text:
        raise InvalidFields({"note": ["Use at most 500 characters."]})
    location, created = StageLocation.objects.get_or_create(
        stage=stage, defaults={"note": text, "by": by.username, "at": at}
    )
    if created:
        data = {"stage": stage.position + 1, "name": stage.name}
        publish(kind="stage.located", target=stage.request, by=by, at=at, reason=text, data=data)
    return location


def must_be_located(stage: Stage) -> bool:
    return stage.arguments.get(MUST_BE_LOCATED) is True


def is_located(stage: Stage) -> bool:
    """Whether the output of a stage is located or need not be located."""
    return not must_be_located(stage) or hasattr(stage, "location")


def _check_reporter(stage: Stage, by: User) -> None:
    request = stage.request
    if not (may(by, Actor.LIAISON, request) or may(by, Actor.OPERATOR, request)):
        raise NotAllowed(
            f"Only liaisons of {request.experiment}, approvers and shifters can report this."
        )
    if request.state not in REPORTABLE:
        raise InvalidTransition(
            f"{request} is “{request.get_state_display()}”. Its jobs cannot report in this state."
        )
