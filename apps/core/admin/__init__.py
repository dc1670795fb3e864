"""Base classes of the admin, and the admin of events, deliveries and heartbeats."""

from apps.core.admin import changes, events
from apps.core.admin.actions import confirmed
from apps.core.admin.base import (
    EMPTY,
    LongListAdmin,
    PortalAdmin,
    ReadOnlyAdmin,
    register_read_only,
)

__all__ = [
    "EMPTY",
    "LongListAdmin",
    "PortalAdmin",
    "ReadOnlyAdmin",
    "changes",
    "confirmed",
    "events",
    "register_read_only",
]
