"""Clusters for tests."""

import os

from apps.clusters.models import Cluster


def cluster(name: str = "alps", scheduler: str = "simulated", **more: object) -> Cluster:
    """The cluster of this name; made at the first call.

    It allows logs that the test itself writes.
    """
    defaults = {"scheduler": scheduler, "options": {"log_owners": str(os.getuid())}, **more}
    return Cluster.objects.get_or_create(name=name, defaults=defaults)[0]
