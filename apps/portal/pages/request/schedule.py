"""The deadline of a request and its expected end."""

from dataclasses import dataclass
from datetime import date, datetime

from django.utils import timezone

from apps.production.domain.forecast import Forecast
from apps.production.domain.slack import Slack, days_after, late_reason, slack_of
from apps.production.enums import CLOSED
from apps.production.models import Request
from apps.progress.domain.progress import RequestNow


@dataclass(frozen=True)
class Schedule:
    """The deadline of a request and its expected end. Lengths are days from its approval."""

    started_at: datetime
    forecast: Forecast
    deadline: date | None
    slack: Slack | None
    days_gone: float
    days_left: float
    days_over: float
    days_overdue: int = 0
    late_reason: str = ""

    @property
    def days_at_risk(self) -> int:
        """By how many days the latest expected end is after the deadline; 0 if it is not."""
        return days_after(self.deadline, self.forecast.end.late if self.forecast.end else None)


def schedule_of(request: Request, progress: RequestNow | None, at: datetime) -> Schedule | None:
    """Return the schedule of an approved request that is still open."""
    if progress is None or request.approved_at is None or request.state in CLOSED:
        return None
    start = timezone.localdate(request.approved_at)
    now = timezone.localdate(at)
    forecast = progress.forecast
    end = forecast.end.likely if forecast.end else now
    due = request.deadline or end
    slack = slack_of(request.deadline, forecast, today=now)
    reason = ""
    if slack and slack.is_late and request.deadline:
        reason = late_reason(slack, request.deadline, today=now)
    return Schedule(
        request.approved_at,
        forecast,
        request.deadline,
        slack,
        days_gone=max(0, (min(now, due) - start).days),
        days_left=max(0, (min(due, max(end, now)) - max(now, start)).days),
        days_over=slack.days_late if slack else 0,
        days_overdue=days_after(request.deadline, now),
        late_reason=reason,
    )
