"""What the archive does when something happens elsewhere, or in itself."""

from apps.archive.domain.links import link_collected, link_stored
from apps.clusters.models import Cluster
from apps.core.domain.subscriptions import subscribe
from apps.core.models import Event


@subscribe("archive.link_collected_jobs", "jobs.collected")
def on_jobs_collected(event: Event) -> None:
    cluster = Cluster.objects.get(pk=event.target_id)
    link_collected(cluster=cluster, job_ids=event.data["jobs"], at=event.at)


@subscribe("archive.link_stored_jobs", "archive.stored")
def on_archive_stored(event: Event) -> None:
    cluster = Cluster.objects.get(pk=event.target_id)
    link_stored(cluster=cluster, spool_ids=event.data["job_ids"], at=event.at)
