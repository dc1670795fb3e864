"""Events of verdicts, failure groups, known errors and log harvests."""

from apps.core.domain.event_kinds import EventKind, declare, declare_administrative
from apps.core.enums import Audience, Group
from apps.diagnosis.enums import GroupStatus

_TO_DECIDE = {Audience.APPROVERS: Group.TURN}
_TO_AUTHOR = {Audience.REQUESTER: Group.OUTCOME}
_TRIAGE = dict.fromkeys((Audience.OPERATORS, Audience.LIAISONS, Audience.OWNER), Group.FAILURES)
_STATUS_LABELS = {status.value: status.label.lower() for status in GroupStatus}

declare(
    EventKind(
        "harvest.requested",
        "requested a re-analysis of the log",
        "had its log re-analysed",
        former_names=("harvest.asked",),
    ),
    EventKind(
        "group.new",
        "found a new kind of failure",
        "is a new kind of failure",
        _TRIAGE,
        title="New kind of failure: {target}",
    ),
    EventKind(
        "group.assigned",
        "assigned the group to {new}",
        "is assigned to {new}",
        {Audience.OWNER: Group.TURN},
        title="Failure group assigned: {target}",
    ),
    EventKind(
        "group.moved",
        "changed the status: {old} → {new}",
        "has a new status",
        labels=_STATUS_LABELS,
    ),
    EventKind(
        "group.regressed",
        "saw jobs fail again after it was {old}",
        "is back",
        _TRIAGE,
        title="Failing again: {target}",
        labels=_STATUS_LABELS,
    ),
    EventKind(
        "group.jumped",
        "saw {jobs} jobs fail in one hour",
        "has many more failures than before",
        _TRIAGE,
        title="Many more failures than before: {target}",
    ),
    EventKind(
        "impact.retryable",
        "found {jobs} failed jobs that were not retried",
        "is over, and jobs that failed because of it were not retried",
        {Audience.OPERATORS: Group.FAILURES},
    ),
    EventKind(
        "known_error.changed", "changed the known error: version {new}", "was changed", _TO_AUTHOR
    ),
    EventKind(
        "known_error.proposed",
        "proposed a change of the known error",
        "has a proposed change",
        _TO_DECIDE,
    ),
    EventKind(
        "known_error.rejected",
        "rejected the proposed change",
        "had a proposed change rejected",
        _TO_AUTHOR,
    ),
    EventKind(
        "known_error.omitted",
        "left the known error out of a log",
        "was left out of a log: its pattern is too slow for it",
        _TO_DECIDE,
    ),
    EventKind("pack.proposed", "proposed the pack", "was proposed", _TO_DECIDE),
    EventKind("pack.applied", "approved the pack", "was approved", _TO_AUTHOR),
    EventKind("pack.rejected", "rejected the pack", "was rejected", _TO_AUTHOR),
    EventKind("reclassification.started", "started a preview", "is being previewed"),
    EventKind("reclassification.applied", "applied it", "is being applied"),
    EventKind("reclassification.cancelled", "cancelled it", "was cancelled"),
    EventKind("verdict.decided", "decided the verdict: {new}", "has a new verdict"),
    EventKind("verdict.withdrawn", "withdrew the verdict: {old}", "has no verdict any more"),
    EventKind(
        "verdict.overridden", "overrode the verdict: {old} → {new}", "had its verdict overridden"
    ),
)

declare_administrative("known_error", "pack", "reclassification")
