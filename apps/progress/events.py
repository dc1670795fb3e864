"""Kinds of events about reports."""

from apps.core.domain.event_kinds import EventKind, declare
from apps.core.enums import Audience, Group

declare(
    EventKind("report.frozen", "froze the production report", "was frozen"),
    EventKind(
        "report.weekly_empty",
        "wrote the report of a week without jobs",
        "has a report of a week without jobs",
    ),
    EventKind(
        "report.weekly",
        "wrote the weekly report",
        "has a weekly report",
        dict.fromkeys((Audience.OPERATORS, Audience.LIAISONS), Group.REPORTS),
    ),
)
