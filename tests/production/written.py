"""Requests for tests, made by the services that make real ones."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from apps.production import services
from apps.production.content import RequestContent, StageContent
from apps.production.enums import RequestState
from apps.production.models import Request

AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def stage(name: str = "generation", **changes: object) -> StageContent:
    values = {
        "name": name,
        "release": "v09_72",
        "configuration": f"{name}.fcl",
        "events": 20_000_000,
        "jobs": 4000,
        "memory_bytes": 4_000_000_000,
        "wall_seconds": 8 * 3600,
        "output_dataset": f"nova.mc.{name}",
    }
    return StageContent(**{**values, **changes})


def content(**changes: object) -> RequestContent:
    """A request of two stages that passes every check."""
    values = {
        "title": "ND rock muons, 2026 beam",
        "purpose": "For the December analysis freeze.",
        "deadline": date(2026, 12, 12),
        "stages": (stage("generation"), stage("simulation")),
    }
    return replace(RequestContent(), **{**values, **changes})


def draft(by, experiment, **changes: object) -> Request:
    return services.create_draft(experiment=experiment, content=content(**changes), by=by, at=AT)


def request_in(state: str, *, by, experiment, approver, **changes: object) -> Request:
    """A request brought to this state by the services."""
    request = draft(by, experiment, **changes)
    later = AT + timedelta(hours=1)
    if state == RequestState.WITHDRAWN:
        return services.withdraw_request(request=request, by=by, at=later)
    if state != RequestState.DRAFT:
        services.submit_request(request=request, by=by, at=later, reason="for the freeze")
    if state == RequestState.CHANGES_ASKED:
        services.ask_for_changes(request=request, by=approver, at=later, reason="is v09_72 validated?")
    if state == RequestState.REJECTED:
        services.reject_request(request=request, by=approver, at=later, reason="made already")
    if state in {RequestState.APPROVED, RequestState.DONE}:
        services.approve_request(request=request, by=approver, at=later)
    if state == RequestState.DONE:
        services.mark_done(request=request, by=approver, at=later)
    return request
