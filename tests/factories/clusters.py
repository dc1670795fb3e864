"""Clusters for tests."""

from apps.clusters.models import Cluster


def cluster(name: str = "alps", scheduler: str = "simulated", **more: object) -> Cluster:
    """The cluster of this name; made at the first call."""
    return Cluster.objects.get_or_create(name=name, defaults={"scheduler": scheduler, **more})[0]
