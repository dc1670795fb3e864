"""Events of clusters."""

from apps.core.domain.event_kinds import EventKind, declare

declare(EventKind("cluster.created", "created the cluster", "was created"))
