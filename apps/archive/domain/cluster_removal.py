"""Remove a cluster and all its data, after a mistyped name or when it is shut down."""

from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import transaction
from django.db.models import PROTECT

from apps.accounts.models import Principal
from apps.archive.domain.retention import content_size, delete_batch
from apps.archive.models import ArchivedJob, Pin
from apps.clusters.models import Cluster
from apps.core.domain.events import publish
from apps.core.domain.health import CAPTURE, HEARTBEAT_LIMIT
from apps.core.errors import InvalidTransition
from apps.core.models import Heartbeat
from apps.jobs.domain.collection.accounting import remove_jobs
from apps.jobs.models import Job

REASON = "cluster removed"


class Contents(NamedTuple):
    """The data deleted with a cluster: rows by kind, compressed bytes, and requests to recount."""

    rows: dict[str, int]
    archive_bytes: int
    requests: list[str]


def contents_of(cluster: Cluster) -> Contents:
    """Count what `remove_cluster` would delete."""
    rows = {}
    for model, suffix in ((Cluster, ""), (Job, "__cluster"), (ArchivedJob, "__cluster")):
        for relation in model._meta.related_objects:
            of_cluster = {relation.field.name + suffix: cluster}
            kind = relation.related_model
            rows[str(kind._meta.verbose_name_plural)] = kind._default_manager.filter(
                **of_cluster
            ).count()
    counted = Job.objects.filter(cluster=cluster).exclude(request_key="").order_by("request_key")
    requests = list(counted.values_list("request_key", flat=True).distinct())
    return Contents(
        {name: count for name, count in rows.items() if count},
        content_size(cluster=cluster),
        requests,
    )


def check_removable(cluster: Cluster, *, at: datetime) -> None:
    """Raise `InvalidTransition` if capture still sends the cluster's jobs or requests use it."""
    hearts = Heartbeat.objects.filter(
        name__startswith=f"{CAPTURE}{cluster.name} on ", at__gt=at - HEARTBEAT_LIMIT
    )
    if heart := hearts.first():
        raise InvalidTransition(
            f"{heart.name} is running and would create the cluster again. Stop it, or correct "
            "its CAPTURE_CLUSTER, and"
            f" retry {HEARTBEAT_LIMIT // timedelta(seconds=1)} s later."
        )
    for relation in Cluster._meta.related_objects:
        rows = relation.related_model._default_manager.filter(**{relation.field.name: cluster})
        if (
            relation.on_delete is PROTECT
            and relation.related_model not in (Job, ArchivedJob)
            and rows.exists()
        ):
            raise InvalidTransition(
                f"{cluster}: the portal's {relation.related_model._meta.verbose_name_plural} "
                "of requests refer to it."
            )


def remove_cluster(*, cluster: Cluster, by: Principal, at: datetime) -> Contents:
    """Delete a cluster, its jobs and scripts, and recount totals without them.

    Return what was deleted. Batches are deleted one transaction each, and the cluster last: if the
    process is killed, the next call continues. Raises `InvalidTransition` as `check_removable`
    does, and while another process collects from the cluster.
    """
    check_removable(cluster, at=at)
    contents = contents_of(cluster)
    Cluster.objects.filter(pk=cluster.pk).update(collects=False)
    remove_jobs(cluster=cluster)
    Pin.objects.filter(job__cluster=cluster).delete()
    archived = ArchivedJob.objects.filter(cluster=cluster, pin=None).order_by("submitted_at", "pk")
    while delete_batch(cluster, archived, reason=REASON, by=by, at=at):
        pass
    with transaction.atomic():
        data = {"rows": contents.rows, "requests": contents.requests}
        publish(kind="cluster.removed", target=cluster, by=by, at=at, data=data)
        cluster.delete()
    return contents
