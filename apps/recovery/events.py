"""Events of recovery rules."""

from apps.core.domain.event_kinds import EventKind, declare, declare_administrative
from apps.core.enums import Audience, Group

declare(
    EventKind("recovery.created", "wrote the recovery rule", "is a new recovery rule"),
    EventKind("recovery.changed", "wrote version {version} of the rule", "has a new version"),
    EventKind("recovery.mode_set", "set the rule from {old} to {new}", "has a new mode"),
    EventKind(
        "recovery.stopped",
        "stopped acting: {completed} of {ended} retries completed",
        "stopped itself because it does not help",
        {Audience.APPROVERS: Group.TROUBLE},
    ),
)

declare_administrative("recovery")
