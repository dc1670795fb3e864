"""The approval of a request, its place in the queue, and what is expected of its jobs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from apps.accounts.models import User
from apps.core.models import Event
from apps.production.domain.advice import SubmitAdvice, request_advice
from apps.production.domain.approvals.requirements import Approval
from apps.production.domain.checks.limits import NeededChange, needed_changes
from apps.production.domain.checks.report import (
    Warnings,
    check_report,
    warnings_at_submission,
    warnings_in,
)
from apps.production.domain.content.model import RequestContent
from apps.production.domain.estimates.figures import NO_ESTIMATE, Estimate
from apps.production.domain.estimates.past import estimate_for
from apps.production.domain.priority.listing import QueueRow, queue_row_of
from apps.production.domain.priority.prospects import QueueNow, with_expected_end
from apps.production.domain.priority.ranks import ranked_requests
from apps.production.enums import CLOSED, EDITABLE, RequestState
from apps.production.models import Request
from apps.production.permissions import may_edit


@dataclass(frozen=True)
class Plan:
    """What the approvers and the queue know of a request. Closed ones have no estimate."""

    approval: Approval
    submission_warnings: Warnings | None
    needed_changes: list[NeededChange]
    advice: SubmitAdvice | None
    estimate: Estimate | None
    queue_row: QueueRow | None
    queue_length: int


def plan_of(
    request: Request,
    content: RequestContent,
    user: User,
    *,
    approval: Approval,
    events: Sequence[Event],
    checks: bool,
    queue: QueueNow | None,
    at: datetime,
) -> Plan:
    """Return the plan of a request. With `checks`, an open request is checked now.

    `queue` is the queue now, if it has been read.
    """
    is_closed = request.state in CLOSED
    queue_row = queue_row_of(request, user=user, at=at)
    estimate = None
    advice = None
    if not is_closed:
        start = queue_row.start.days if queue_row and queue_row.start else None
        estimate = estimate_for(content, request.experiment, at, without=request)
        estimate = with_expected_end(estimate, request, content, start=start, at=at, queue=queue)
        advice = request_advice(content=content, experiment=request.experiment, user=user, at=at)

    warnings = warnings_at_submission(events)
    # Approvers decide on current warnings, and liaisons see what a submission still needs.
    is_written = request.state in EDITABLE and may_edit(user, request)
    is_to_sign = request.state == RequestState.AWAITING_APPROVAL
    if is_written or is_to_sign or (checks and not is_closed):
        report = check_report(
            content, experiment=request.experiment, at=at, request=request, queue=queue
        )
        warnings = warnings_in(report, at=at)

    return Plan(
        approval=approval,
        submission_warnings=warnings,
        needed_changes=needed_changes(request, content, estimate or NO_ESTIMATE, at=at),
        advice=advice,
        estimate=estimate,
        queue_row=queue_row,
        queue_length=ranked_requests().count() if queue_row else 0,
    )
