"""Exclusions of hosts in the admin, read-only: they are changed on their pages."""

from apps.core.admin import register_read_only
from apps.hosts.models import CentralCause, HostExclusion

register_read_only(
    HostExclusion,
    "host cluster by automatic started_at expires_at ended_at ended_as",
    search="host",
    filters=["cluster", "automatic", "ended_as"],
)
register_read_only(
    CentralCause, "cluster failing_hosts known_hosts started_at ended_at", filters=["cluster"]
)
