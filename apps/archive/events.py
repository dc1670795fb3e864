"""Events of captured jobs, capture hosts and the retention of the archive."""

from apps.core.domain.event_kinds import EventKind, declare, declare_administrative

declare(
    EventKind(
        "archive.stored", "stored scripts and environments", "had scripts and environments stored"
    ),
    EventKind("jobs.linked", "linked jobs to their scripts", "had jobs linked to their scripts"),
    EventKind(
        "archive.conflict", "received captures that differ", "had captures of one job that differ"
    ),
    EventKind(
        "archive.capture_chosen",
        "chose the capture to use",
        "was chosen among captures that differ",
    ),
    EventKind(
        "archive.choice_undone",
        "undid the choice of the capture",
        "is no longer the chosen capture",
    ),
    EventKind("archive.pinned", "pinned the job", "was pinned"),
    EventKind("archive.unpinned", "unpinned the job", "was unpinned"),
    EventKind("archive.expired", "deleted expired jobs", "had expired jobs deleted"),
    EventKind(
        "archive.refused_retried",
        "retried the refused jobs of the sink",
        "had its refused jobs retried",
    ),
    EventKind(
        "archive.refused_dropped", "dropped refused jobs of the sink", "had refused jobs dropped"
    ),
    EventKind("archive.sink_forgotten", "removed the sink", "was removed"),
    EventKind("archive.retention_changed", "changed the retention rule", "was changed"),
    EventKind("cluster.removed", "removed the cluster with its jobs and scripts", "was removed"),
    EventKind("capture_host.created", "created the capture host", "was created"),
    EventKind(
        "capture_host.changed", "changed the clusters of the capture host", "has other clusters"
    ),
    EventKind("capture_host.token_added", "added a token of the capture host", "has a new token"),
    EventKind("capture_host.tokens_revoked", "revoked tokens", "had tokens revoked"),
)

declare_administrative("capture_host", "archive.retention_changed")
