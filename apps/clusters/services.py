"""Making clusters known."""

from datetime import datetime

from django.db import transaction

from apps.clusters.models import Cluster
from apps.core.services import publish


@transaction.atomic
def ensure_cluster(
    *, name: str, scheduler: str, by: object, at: datetime, options: dict[str, str] | None = None
) -> Cluster:
    """Return the cluster of this name, made with this scheduler if it was not there."""
    cluster, created = Cluster.objects.get_or_create(
        name=name, defaults={"scheduler": scheduler, "options": options or {}}
    )
    if created:
        publish(kind="cluster.created", target=cluster, by=by, at=at, new=scheduler)
    return cluster
