"""What happens to verdicts and log harvests."""

from apps.core.domain.event_kinds import EventKind, declare

declare(
    EventKind("harvest.asked", "requested a re-analysis of the log", "had its log re-analysed"),
    EventKind("verdict.decided", "decided the verdict: {new}", "has a new verdict"),
    EventKind("verdict.overridden", "overrode the verdict: {old} → {new}", "had its verdict overridden"),
)
