"""What happens to verdicts and log harvests."""

from apps.core.domain.event_kinds import EventKind, declare

declare(
    EventKind("harvest.asked", "requested a re-analysis of the log", "had its log re-analysed"),
    EventKind("group.new", "found a new kind of failure", "is a new kind of failure"),
    EventKind("group.moved", "changed the status: {old} → {new}", "has a new status"),
    EventKind("group.regressed", "saw jobs fail again after it was {old}", "is back"),
    EventKind("group.jumped", "saw {jobs} jobs fail in one hour", "has many more failures than before"),
    EventKind("verdict.decided", "decided the verdict: {new}", "has a new verdict"),
    EventKind("verdict.overridden", "overrode the verdict: {old} → {new}", "had its verdict overridden"),
)
