"""What happens to services: incidents, maintenance windows, announcements, monitoring sources."""

from apps.core.domain.event_kinds import EventKind, declare

declare(
    EventKind("service.created", "created the service", "was created"),
    EventKind("incident.opened", "opened the incident", "was opened"),
    EventKind("incident.changed", "changed the state from {old} to {new}", "has changed state"),
    EventKind("incident.updated", "updated the incident", "was updated"),
    EventKind("incident.closed", "closed the incident", "was closed"),
    EventKind("incident.renewed", "reported the incident again", "was reported again"),
    EventKind("incident.stale", "stopped reporting the incident", "is no longer reported: state unknown"),
    EventKind("window.scheduled", "scheduled the maintenance window", "was scheduled"),
    EventKind("window.cancelled", "cancelled the maintenance window", "was cancelled"),
    EventKind("announcement.posted", "posted the announcement", "was posted"),
    EventKind("announcement.withdrawn", "withdrew the announcement", "was withdrawn"),
    EventKind("source.created", "created the monitoring source", "was created"),
    EventKind("source.token_added", "added a token", "has a new token"),
    EventKind("source.recovered", "resumed reporting", "reports again"),
    EventKind("source.no_data", "stopped reporting", "stopped reporting"),
    EventKind("rule.added", "added an alert rule", "has a new alert rule"),
)
