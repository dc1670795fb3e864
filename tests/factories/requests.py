"""Requests for tests, made by the services that make real ones."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from apps.production.domain.content.model import RequestContent, StageContent
from apps.production.domain.lifecycle.moves import SERVICES, check_request
from apps.production.domain.lifecycle.steps import apply_move
from apps.production.domain.requests.drafts import create_draft
from apps.production.enums import PORTAL, RequestState, Verb
from apps.production.models import Request
from apps.quality.domain import runs as quality
from apps.quality.domain.standing import standing_of

AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
#: When `request_in` makes its moves.
LATER = AT + timedelta(hours=1)


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
    return create_draft(experiment=experiment, content=content(**changes), by=by, at=AT)


S = RequestState
#: How a request gets into a state: the state before, the verb, and who makes the move.
WAYS = {
    S.SUBMITTED: (S.DRAFT, Verb.SUBMIT, "by"),
    S.CHANGES_REQUESTED: (S.AWAITING_APPROVAL, Verb.REQUEST_CHANGES, "approver"),
    S.REJECTED: (S.AWAITING_APPROVAL, Verb.REJECT, "approver"),
    S.QUEUED: (S.AWAITING_APPROVAL, Verb.APPROVE, "approver"),
    S.TESTING: (S.QUEUED, Verb.TEST, "approver"),
    S.RUNNING: (S.QUEUED, Verb.START, "approver"),
    S.ON_HOLD: (S.RUNNING, Verb.HOLD, "approver"),
    S.COMPLETING: (S.RUNNING, Verb.COMPLETE, "approver"),
    S.DATA_QUALITY: (S.COMPLETING, Verb.REVIEW, "approver"),
    S.DONE: (S.DATA_QUALITY, Verb.DONE, "approver"),
    S.DONE_PARTIAL: (S.DATA_QUALITY, Verb.DONE_PARTIAL, "approver"),
    S.CANCELLED: (S.DRAFT, Verb.CANCEL, "by"),
    S.SUPERSEDED: (S.QUEUED, Verb.SUPERSEDE, "by"),
}
#: The portal passes through these at once; a request stays in one only if the portal is stopped just then.
PASSING = {S.CHECKING: (S.SUBMITTED, Verb.CHECK), S.APPROVED: (S.AWAITING_APPROVAL, Verb.APPROVE)}


def request_in(state: str, *, by, experiment, approver, later: datetime = LATER, **changes: object) -> Request:
    """A request brought to this state by the services, at this moment."""
    if state == S.DRAFT:
        return draft(by, experiment, **changes)
    if state in PASSING:
        before, verb = PASSING[S(state)]
        request = request_in(before, by=by, experiment=experiment, approver=approver, later=later, **changes)
        if verb is Verb.CHECK:
            return apply_move(request, verb, by=PORTAL, at=later)
        return apply_move(request, verb, by=approver, at=later, approved_at=later, approved_by=approver)
    if state == S.AWAITING_APPROVAL:
        request = request_in(S.SUBMITTED, by=by, experiment=experiment, approver=approver, later=later, **changes)
        return check_request(request=request, at=later)
    before, verb, who = WAYS[S(state)]
    request = request_in(before, by=by, experiment=experiment, approver=approver, later=later, **changes)
    if before == S.DATA_QUALITY:
        pass_quality(request, approver, at=later)
    more = {"successor": draft(by, experiment)} if verb is Verb.SUPERSEDE else {}
    person = approver if who == "approver" else by
    return SERVICES[verb](request=request, by=person, at=later, reason="for the freeze", **more)


def pass_quality(request: Request, approver, *, at: datetime = AT) -> None:
    """Have the checks of data quality run, and let the approver waive what does not pass."""
    quality.ask_for_run(request=request, by=PORTAL, at=at)
    quality.run_checks(request=request, at=at)
    for one in standing_of(request).open:
        quality.waive_result(request=request, result=one.pk, by=approver, at=at, reason="Looked at by hand.")
