"""Clusters that have room for another request, and start one without a person.

A worker stores them, because counting their jobs is too slow for a page.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal

from apps.clusters.models import Cluster
from apps.production.domain.content.model import RequestContent, StageContent
from apps.production.domain.outlook import Outlook, outlook
from apps.production.models import QueueState, Request, Stage
from apps.statusboard.models import Service


@dataclass(frozen=True)
class FreeCluster:
    """A cluster with room for another request, and which requests it starts.

    `experiments` are the keys of those whose requests it starts, empty for all; those in `full`
    have reached their limit there. A limit of None is no limit.
    """

    name: str
    max_memory_bytes: int | None = None
    max_wall_seconds: int | None = None
    experiments: Sequence[str] = ()
    full: Sequence[str] = ()

    def takes(self, experiment: str, content: RequestContent) -> bool:
        """Whether it starts requests of an experiment, and its limits allow all their jobs."""
        if experiment in self.full or (self.experiments and experiment not in self.experiments):
            return False
        return not exceeded_limit(content.stages, self)


def exceeded_limit(
    stages: Iterable[Stage | StageContent], cluster: Cluster | FreeCluster
) -> Literal["", "memory", "wall time"]:
    """Return which limit of a cluster a job of these stages exceeds; empty if none does."""
    stages = list(stages)
    most_memory = max((stage.memory_bytes or 0 for stage in stages), default=0)
    longest = max((stage.wall_seconds or 0 for stage in stages), default=0)
    if cluster.max_memory_bytes and most_memory > cluster.max_memory_bytes:
        return "memory"
    if cluster.max_wall_seconds and longest > cluster.max_wall_seconds:
        return "wall time"
    return ""


def store_free_clusters(clusters: Sequence[FreeCluster]) -> None:
    """Store the clusters that are free now, if they have changed.

    It locks the state of the queue: lock no requests after it.
    """
    data = [as_data(cluster) for cluster in clusters]
    QueueState.objects.get_or_create(pk=1)
    QueueState.objects.filter(pk=1).exclude(free_clusters=data).update(free_clusters=data)


def as_data(cluster: FreeCluster) -> dict[str, Any]:
    """Return a cluster as JSON."""
    return asdict(cluster) | {
        "experiments": list(cluster.experiments),
        "full": list(cluster.full),
    }


@dataclass(frozen=True)
class AutomaticStarts:
    """The free clusters, and what speaks against submitting jobs now.

    `services` has the primary key of each service by its slug. Without clusters, nothing is read.
    """

    clusters: Sequence[FreeCluster] = ()
    outlook: Outlook | None = None
    services: Mapping[str, int] = field(default_factory=dict)

    def clusters_for(self, request: Request, content: RequestContent) -> list[str]:
        """Return the names of the clusters that would start this request, if it was the first."""
        if self.outlook is None:
            return []
        needed = set()
        for stage in content.stages:
            for slug in stage.services:
                if slug in self.services:
                    needed.add(self.services[slug])
        if self.outlook.against_services(request, needed):
            return []
        key = request.experiment.key
        return [cluster.name for cluster in self.clusters if cluster.takes(key, content)]


def read_automatic_starts(state: QueueState, *, at: datetime) -> AutomaticStarts:
    """Return the stored free clusters, with what speaks against submitting jobs now."""
    if not state.free_clusters:
        return AutomaticStarts()
    clusters = [FreeCluster(**data) for data in state.free_clusters]
    services = dict(Service.objects.values_list("slug", "pk"))
    return AutomaticStarts(clusters, outlook(at), services)
