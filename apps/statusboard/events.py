"""Events of the status board: incidents, maintenance windows, announcements, monitoring sources."""

from apps.core.domain.event_kinds import EventKind, declare, declare_administrative

declare(
    EventKind("service.created", "created the service", "was created"),
    EventKind("incident.opened", "opened the incident", "was opened"),
    EventKind("incident.changed", "changed the state from {old} to {new}", "has changed state"),
    EventKind("incident.updated", "updated the incident", "was updated"),
    EventKind("incident.closed", "closed the incident", "was closed"),
    EventKind("incident.reopened", "reopened the incident", "was reopened"),
    EventKind("incident.corrected", "corrected start or end", "has corrected times"),
    EventKind("incident.acknowledged", "acknowledged the incident", "was acknowledged"),
    EventKind("incident.update_posted", "posted an update", "has an update"),
    EventKind("incident.log_added", "added lines of the service log", "has new log lines"),
    EventKind("incident.post_mortem_written", "wrote the post-mortem", "has a post-mortem"),
    EventKind("incident.merged", "merged it into {new}", "was merged"),
    EventKind("incident.split", "split it from {old}", "was split from another incident"),
    EventKind("incident.divided", "divided it in two: the second is {new}", "was divided in two"),
    EventKind("incident.renewed", "reported the incident again", "was reported again"),
    EventKind(
        "incident.stale", "stopped reporting the incident", "is no longer reported: state unknown"
    ),
    EventKind("window.scheduled", "scheduled the maintenance window", "was scheduled"),
    EventKind("window.moved", "moved it from {old} to {new}", "was moved"),
    EventKind("window.cancelled", "cancelled the maintenance window", "was cancelled"),
    EventKind("announcement.posted", "posted the announcement", "was posted"),
    EventKind("announcement.pinned", "pinned the announcement", "was pinned"),
    EventKind("announcement.unpinned", "unpinned the announcement", "was unpinned"),
    EventKind("announcement.withdrawn", "withdrew the announcement", "was withdrawn"),
    EventKind("shift.handed_over", "handed over the shift", "has handed over the shift"),
    EventKind("source.created", "created the monitoring source", "was created"),
    EventKind("source.token_added", "added a token of the monitoring source", "has a new token"),
    EventKind(
        "source.tokens_revoked",
        "revoked the older tokens of the monitoring source",
        "had its older tokens revoked",
    ),
    EventKind("source.mapped", "changed the mapping", "has a new mapping"),
    EventKind("source.recovered", "resumed reporting", "reports again"),
    EventKind("source.no_data", "stopped reporting", "stopped reporting"),
    EventKind("rule.added", "added an alert rule", "has a new alert rule"),
)

declare_administrative("announcement", "service", "source", "rule")
