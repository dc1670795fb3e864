"""The computation of priority: the points that each fact adds to the score of a request.

See docs/priority.md. This module does not access the database. Every term except waiting is
bounded, so every request reaches the top eventually.
"""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta

from apps.production.enums import RequestedPriority

#: Points of the class set by the OPG. Without one, the class is normal.
CLASS_POINTS = {
    RequestedPriority.LOW: 0.0,
    RequestedPriority.NORMAL: 40.0,
    RequestedPriority.HIGH: 80.0,
    RequestedPriority.URGENT: 160.0,
}
#: Points of the priority requested by the experiment.
REQUESTED_POINTS = {
    RequestedPriority.LOW: -5.0,
    RequestedPriority.NORMAL: 0.0,
    RequestedPriority.HIGH: 5.0,
    RequestedPriority.URGENT: 10.0,
}
USUAL_NUMBER = 5
NUMBER_POINTS = 4.0
#: The deadline gives one point for each day by which the slack is below this many days.
DEADLINE_DAYS = 40.0
#: Small requests come first: all points up to the first size in core-hours, none from the second.
SIZE_POINTS = 15.0
SMALL_HOURS = 100.0
LARGE_HOURS = 1_000_000.0
SHARE_POINTS = 30.0
WAITING_POINTS_PER_DAY = 2.0

_DAY = timedelta(days=1)
_EPOCH = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class ScoreFacts:
    """The facts from which a score is computed.

    `share` and `used` are fractions of all production, 0 to 1; None is unknown.
    """

    priority_class: str = ""
    number: int | None = None
    requested_priority: str = RequestedPriority.NORMAL
    deadline: date | None = None
    takes_days: float | None = None
    core_seconds: float | None = None
    size_basis: str = ""
    experiment_name: str = ""
    share: float = 0.0
    used: float | None = None
    used_days: int = 0


@dataclass(frozen=True)
class Term:
    """One part of a score: its points, and a sentence that explains them."""

    key: str
    title: str
    points: float
    why: str


def score_terms(facts: ScoreFacts, *, today: date) -> list[Term]:
    """Return every term except waiting and the manual move."""
    return [
        _class(facts),
        _number(facts),
        _requested(facts),
        _deadline(facts, today),
        _size(facts),
        _share(facts),
    ]


def waiting_term(submitted_at: datetime, at: datetime) -> Term:
    """Return the points for waiting, which grow without bound."""
    days = (at - submitted_at) / _DAY
    why = f"{_days(days)} since it was submitted; {WAITING_POINTS_PER_DAY:g} points for each."
    return Term("waiting", "Waiting", WAITING_POINTS_PER_DAY * days, why)


def manual_term(points: float, *, by: str, reason: str) -> Term:
    return Term("hand", "Moved manually", points, f"By {by}: “{reason}”")


def total_score(terms: Iterable[Term]) -> float:
    return math.fsum(term.points for term in terms)


def sort_key(points: float, submitted_at: datetime) -> float:
    """Return a key with the same order as the scores at any time, since all scores grow equally.

    It is rounded, so that computing it again gives the same key.
    """
    return round(points - WAITING_POINTS_PER_DAY * ((submitted_at - _EPOCH) / _DAY), 6)


def as_data(terms: Iterable[Term]) -> list[dict[str, object]]:
    return [asdict(term) for term in terms]


def _class(facts: ScoreFacts) -> Term:
    if not facts.priority_class:
        return Term(
            "class",
            "Class: not set",
            CLASS_POINTS[RequestedPriority.NORMAL],
            "Counts as normal until set.",
        )
    chosen = RequestedPriority(facts.priority_class)
    return Term("class", f"Class: {chosen.label}", CLASS_POINTS[chosen], "Set by the OPG.")


def _number(facts: ScoreFacts) -> Term:
    if facts.number is None:
        return Term("number", "Number: not set", 0.0, f"Counts as {USUAL_NUMBER} until set.")
    points = NUMBER_POINTS * (facts.number - USUAL_NUMBER)
    why = f"Set by the OPG; {NUMBER_POINTS:g} points for each above or below {USUAL_NUMBER}."
    return Term("number", f"Number: {facts.number}", points, why)


def _requested(facts: ScoreFacts) -> Term:
    requested = RequestedPriority(facts.requested_priority)
    return Term(
        "asked",
        f"Requested: {requested.label}",
        REQUESTED_POINTS[requested],
        "Requested by the experiment.",
    )


def _deadline(facts: ScoreFacts, today: date) -> Term:
    if facts.deadline is None:
        return Term("deadline", "No deadline", 0.0, "The request has no deadline.")
    left = float((facts.deadline - today).days)
    slack = left - (facts.takes_days or 0.0)
    points = min(DEADLINE_DAYS, max(0.0, DEADLINE_DAYS - slack))
    if facts.takes_days is None:
        takes = "the duration of its work is unknown"
    else:
        takes = f"all its work is estimated at {_days(facts.takes_days)}"
    if left >= 0:
        title = f"Deadline in {left:.0f} d"
    else:
        title = f"Deadline {-left:.0f} d ago"
    if slack >= 0:
        spare = f"{_days(slack)} to spare"
    else:
        spare = f"{_days(-slack)} short"
    why = (
        f"{takes.capitalize()}: {spare} if it started today. A point for each day fewer than "
        f"{DEADLINE_DAYS:g}."
    )
    return Term("deadline", title, round(points, 2), why)


def _size(facts: ScoreFacts) -> Term:
    if facts.core_seconds is None:
        return Term(
            "size", "Size unknown", 0.0, "No past jobs, and the request lacks jobs or wall time."
        )
    hours = facts.core_seconds / 3600
    part = math.log(LARGE_HOURS / min(LARGE_HOURS, max(SMALL_HOURS, hours))) / math.log(
        LARGE_HOURS / SMALL_HOURS
    )
    why = f"Based on {facts.size_basis}. Small requests run sooner."
    return Term("size", f"Size: {hours:,.0f} core-hours", round(SIZE_POINTS * part, 2), why)


def _share(facts: ScoreFacts) -> Term:
    title = f"Share of {facts.experiment_name}" if facts.experiment_name else "Share"
    if facts.used is None:
        return Term("share", title, 0.0, "No recent jobs, so no share is used.")
    most = max(facts.share, facts.used)
    if most:
        points = SHARE_POINTS * (facts.share - facts.used) / most
    else:
        points = 0.0
    why = (
        f"{100 * facts.used:.0f} % of the core-hours of the last {facts.used_days} days; "
        f"its share is {100 * facts.share:.0f} %."
    )
    return Term("share", title, round(points, 1) + 0.0, why)


def _days(days: float) -> str:
    return f"{days:.1f} days" if abs(days) < 10 else f"{days:,.0f} days"
