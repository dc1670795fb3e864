"""The slack of a request: the time from its end to its deadline.

All pages, mails and the API use it.
"""

from dataclasses import dataclass, replace
from datetime import date

from django.db.models import F, Q

from apps.core.domain.quantities import count_noun
from apps.production.domain.forecast import Forecast

#: Slack below this many days is tight.
TIGHT_DAYS = 5


@dataclass(frozen=True)
class Slack:
    """Whole days from the end of a request to its deadline. Negative if it is late.

    `end` is the expected end in this class and under this assumption. Without it, the deadline has
    passed, or the expected `start` is after it: then the request is late by at least these days.
    """

    days: int
    end: date | None = None
    priority_class: str = ""
    assumption: str = ""
    start: date | None = None

    @property
    def level(self) -> str:
        """The level of the slack: `ok`, `tight` or `over`."""
        if self.is_late:
            return "over"
        if self.days < TIGHT_DAYS:
            return "tight"
        return "ok"

    @property
    def is_late(self) -> bool:
        return self.days < 0

    @property
    def days_late(self) -> int:
        return max(0, -self.days)

    @property
    def late_text(self) -> str:
        """By how much it is late in a narrow column: `3 d late`, or `≥ 3 d late` by its start."""
        at_least = "≥ " if self.start else ""
        return f"{at_least}{self.days_late:,} d late"

    @property
    def basis(self) -> str:
        """The end and its conditions: `Expected 5 Dec 2026 in class high, if approved now`."""
        if self.start is not None:
            return f"Expected to start on {self.start:%-d %b %Y}; its expected end is unknown"
        if self.end is None:
            return "The deadline has passed; the expected end is unknown"
        in_class = ""
        if self.priority_class:
            in_class = f" in class {self.priority_class}"
        return (
            "Expected "
            f"{self.end:%-d %b %Y}{in_class}{f', {self.assumption}' if self.assumption else ''}"
        )


def slack_until(
    deadline: date | None, end: date | None, *, today: date, start: date | None = None
) -> Slack | None:
    """Return the slack of an open request with an expected end; None if it is unknown.

    An open request cannot end before today, and it is not late on the day of its deadline. Without
    an expected end, it is late only if its deadline has passed, or its expected `start` is later.
    """
    if deadline is None:
        return None
    if end is not None:
        return Slack((deadline - max(end, today)).days, end)
    if start is not None and start > max(deadline, today):
        return Slack((deadline - start).days, start=start)
    if today > deadline:
        return Slack((deadline - today).days)
    return None


def slack_of(deadline: date | None, forecast: Forecast | None, *, today: date) -> Slack | None:
    """Return the slack of an open request, with class and assumption of its forecast."""
    if forecast is None:
        return slack_until(deadline, None, today=today)
    end = forecast.end.likely if forecast.end else None
    start = forecast.start.likely if forecast.start else None
    slack = slack_until(deadline, end, today=today, start=start)
    if slack is None:
        return None
    return replace(slack, priority_class=forecast.priority_class, assumption=forecast.assumption)


def days_after(deadline: date | None, day: date | None) -> int:
    """Return by how many days a day is after the deadline; 0 if it is not, or one is unknown."""
    if deadline is None or day is None:
        return 0
    return max(0, (day - deadline).days)


def late_reason(slack: Slack, deadline: date, *, today: date) -> str:
    """Return why a late request is late: its deadline has passed, or it starts or ends after it.

    Example: `expected to end on 5 Dec 2026, 2 days after its deadline`.
    """
    days = count_noun(slack.days_late, "day")
    day = slack.end or slack.start
    what = "end" if slack.end else "start"
    if today > deadline:
        reason = f"its deadline {deadline:%-d %b %Y} has passed"
        if day is not None and day > deadline:
            reason += f"; expected to {what} {days} after it, on {day:%-d %b %Y}"
        return reason
    assumption = f" {slack.assumption}" if slack.assumption else ""
    reason = f"expected to {what} on {day:%-d %b %Y}{assumption}, {days} after its deadline"
    if slack.end is None:
        reason += ", and its end is unknown"
    return reason


def is_late_on(today: date) -> Q:
    """Return a database condition for open requests with a negative slack, as in `slack_until`."""
    starts_late = Q(expected_end=None, expected_start__gt=F("deadline"))
    return Q(deadline__lt=today) | Q(expected_end__gt=F("deadline")) | starts_late
