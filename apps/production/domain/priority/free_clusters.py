"""Clusters that have room for another request, and start one without a person.

A worker stores them, because counting their jobs is too slow for a page.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal

from apps.clusters.models import Cluster
from apps.production.domain.content.model import RequestContent, StageContent
from apps.production.domain.content.stages import content_of
from apps.production.domain.holds import hold_of
from apps.production.domain.outlook import Outlook, read_outlook
from apps.production.models import QueueState, Request, Stage
from apps.statusboard.models import Service


@dataclass
class Room:
    """How many more jobs a cluster takes, which changes as requests start there.

    `of_experiments` has those with a limit or with jobs there, by key; each other experiment has
    room for `of_others`.
    """

    jobs: int
    of_others: int
    of_experiments: dict[str, int] = field(default_factory=dict)

    def left_for(self, experiment_key: str) -> int:
        """Return how many more jobs the limit of an experiment allows."""
        return self.of_experiments.get(experiment_key, self.of_others)

    def has_any(self, experiment_key: str) -> bool:
        """Whether another request of an experiment can start, however large it is."""
        return self.jobs > 0 and self.left_for(experiment_key) > 0

    def take(self, experiment_key: str, jobs: int) -> None:
        """Count jobs of an experiment that start there."""
        self.of_experiments[experiment_key] = self.left_for(experiment_key) - jobs
        self.jobs -= jobs


@dataclass(frozen=True)
class FreeCluster:
    """A cluster that starts requests without a person, with the room that is left there.

    `experiments` are the keys of those whose requests it starts, empty for all. With `has_tests`,
    a request starts with a test of one job. A limit of None is no limit.
    """

    name: str
    room: Room
    max_memory_bytes: int | None = None
    max_wall_seconds: int | None = None
    experiments: Sequence[str] = ()
    has_tests: bool = True

    def takes(self, experiment_key: str, content: RequestContent) -> bool:
        """Whether it starts requests of an experiment, and its limits allow all their jobs."""
        if self.experiments and experiment_key not in self.experiments:
            return False
        return not exceeded_limit(content.stages, self)

    def first_jobs(self, stages: Sequence[Stage] | Sequence[StageContent]) -> int:
        """Return how many jobs a request with these stages submits when it starts."""
        if self.has_tests or not stages:
            return 1
        return stages[0].jobs or 1


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
    """Store the clusters that are free now and the room on each, if they have changed.

    It locks the state of the queue: lock no requests after it.
    """
    data = [as_data(cluster) for cluster in clusters]
    QueueState.objects.get_or_create(pk=1)
    QueueState.objects.filter(pk=1).exclude(free_clusters=data).update(free_clusters=data)


def as_data(cluster: FreeCluster) -> dict[str, Any]:
    """Return a cluster as JSON."""
    return asdict(cluster) | {"experiments": list(cluster.experiments)}


def _from_data(data: Mapping[str, Any]) -> FreeCluster:
    return FreeCluster(**{**data, "room": Room(**data["room"])})


@dataclass(frozen=True)
class AutomaticStarts:
    """The free clusters, and what speaks against submitting jobs now.

    `services` has the primary key of each service by its slug. Without clusters, nothing is read.
    """

    clusters: Sequence[FreeCluster] = ()
    outlook: Outlook | None = None
    services: Mapping[str, int] = field(default_factory=dict)

    def clusters_for(self, request: Request, content: RequestContent) -> list[FreeCluster]:
        """Return the clusters that would start this request, as far as they have room for it."""
        if self.outlook is None:
            return []
        service_pks = set()
        for stage in content.stages:
            for slug in stage.services:
                if slug in self.services:
                    service_pks.add(self.services[slug])
        if self.outlook.against_services(request, service_pks):
            return []
        experiment_key = request.experiment.key
        return [cluster for cluster in self.clusters if cluster.takes(experiment_key, content)]


def read_automatic_starts(state: QueueState, *, at: datetime) -> AutomaticStarts:
    """Return the stored free clusters, with what speaks against submitting jobs now."""
    if not state.free_clusters:
        return AutomaticStarts()
    clusters = [_from_data(data) for data in state.free_clusters]
    services = dict(Service.objects.values_list("slug", "pk"))
    return AutomaticStarts(clusters, read_outlook(at), services)


def take_room(state: QueueState, request: Request, *, at: datetime) -> str:
    """Take the room of the cluster that starts a request at once, and return its name.

    Empty if none does. The caller has locked the state of the queue.
    """
    if not state.free_clusters or hold_of(request) is not None:
        return ""
    starts = read_automatic_starts(state, at=at)
    content = content_of(request)
    experiment_key = request.experiment.key
    for cluster in starts.clusters_for(request, content):
        if cluster.room.has_any(experiment_key):
            cluster.room.take(experiment_key, cluster.first_jobs(content.stages))
            state.free_clusters = [as_data(free_cluster) for free_cluster in starts.clusters]
            state.save(update_fields=["free_clusters"])
            return cluster.name
    return ""


@dataclass(frozen=True)
class Starter:
    """A queued request that a cluster starts now, with its index in the queue."""

    request_pk: int
    index: int
    cluster_name: str
    experiment_key: str


@dataclass(frozen=True)
class StartNow:
    """The cluster that starts a request now, and the request whose room it takes, if any."""

    cluster_name: str
    displaced_pk: int | None = None


class StartsNow:
    """The room of free clusters while requests that are new in the queue start one after another.

    A request starts where there is room beyond the `starters`. If there is none, it takes the room
    of a starter behind it.
    """

    def __init__(self, clusters: Iterable[FreeCluster], starters: Iterable[Starter]) -> None:
        self._rooms = {cluster.name: deepcopy(cluster.room) for cluster in clusters}
        self._starters = list(starters)

    def start(
        self,
        index: int,
        experiment_key: str,
        stages: Sequence[StageContent],
        clusters: Iterable[FreeCluster],
    ) -> StartNow | None:
        """Start a request before the entry with this index; None if no cluster has room for it."""
        for cluster in clusters:
            room = self._rooms[cluster.name]
            if room.has_any(experiment_key):
                room.take(experiment_key, cluster.first_jobs(stages))
                return StartNow(cluster.name)
            if starter := self._last_starter(index, experiment_key, cluster.name):
                self._starters.remove(starter)
                return StartNow(cluster.name, starter.request_pk)
        return None

    def _last_starter(self, index: int, experiment_key: str, cluster_name: str) -> Starter | None:
        """Return the last starter behind an index whose room is enough for the experiment."""
        is_at_limit = self._rooms[cluster_name].left_for(experiment_key) <= 0
        for starter in reversed(self._starters):
            if starter.index < index or starter.cluster_name != cluster_name:
                continue
            if starter.experiment_key == experiment_key or not is_at_limit:
                return starter
        return None
