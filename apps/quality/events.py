"""Kinds of events about the data quality of requests."""

from apps.core.domain.event_kinds import TEAM, EventKind, declare, declare_administrative, to
from apps.core.enums import Group

declare(
    EventKind(
        "request.quality_asked",
        "requested a new run of the quality checks",
        "has its data quality checked again",
    ),
    EventKind(
        "request.quality_failed",
        "completed the quality checks: not all passed",
        "did not pass all quality checks",
        to(Group.TROUBLE, *TEAM, approvers=Group.TURN),
    ),
    EventKind(
        "request.quality_passed",
        "completed the quality checks: all passed or waived",
        "passed its quality checks",
        to(Group.PROGRESS, *TEAM),
    ),
    EventKind(
        "request.quality_posted", "posted a quality result ({what})", "has a new quality result"
    ),
    EventKind(
        "request.waive",
        "waived a quality check ({check})",
        "had a quality check waived",
        to(Group.CHANGE, *TEAM),
    ),
    EventKind(
        "request.withdraw_waiver",
        "withdrew the waiver of a quality check ({check})",
        "had the waiver of a quality check withdrawn",
        to(Group.CHANGE, *TEAM),
    ),
    EventKind("quality.thresholds_saved", "saved thresholds", "were saved"),
)

declare_administrative("quality.thresholds_saved")
