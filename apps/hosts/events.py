"""Events of excluded hosts."""

from apps.core.domain.event_kinds import EventKind, declare

declare(
    EventKind(
        "host.excluded",
        "excluded the host from new jobs until {until}",
        "was excluded from new jobs",
    ),
    EventKind(
        "host.extended",
        "extended the exclusion of the host: {old} → {new}",
        "is excluded for longer",
    ),
    EventKind("host.returned", "returned the host to new jobs", "is back for new jobs"),
    EventKind("host.expired", "ended the exclusion, which expired", "is back for new jobs"),
    EventKind(
        "host.central_cause",
        "noted a central cause: {failing} of {known} hosts fail",
        "has a central cause of failures",
    ),
    EventKind(
        "host.central_cause_ended",
        "noted the end of the central cause",
        "has no central cause of failures any more",
    ),
)
