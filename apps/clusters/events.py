"""Events of clusters."""

from apps.core.domain.event_kinds import EventKind, declare, declare_administrative

declare(EventKind("cluster.created", "created the cluster", "was created"))

declare_administrative("cluster")
