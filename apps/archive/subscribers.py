"""Reactions of the archive to events."""

from apps.accounts.models import Experiment
from apps.archive.domain.links import claim_archived, link_collected, link_stored
from apps.clusters.models import Cluster
from apps.core.domain.subscriptions import subscribe
from apps.core.models import Event


@subscribe("archive.link_collected_jobs", "jobs.collected")
def on_jobs_collected(event: Event) -> None:
    if cluster := Cluster.objects.filter(pk=event.target_id).first():  # else removed since
        link_collected(cluster=cluster, job_pks=event.data["jobs"], at=event.at)


@subscribe("archive.link_stored_jobs", "archive.stored")
def on_archive_stored(event: Event) -> None:
    if cluster := Cluster.objects.filter(pk=event.target_id).first():
        link_stored(cluster=cluster, spool_ids=event.data["job_ids"], at=event.at)


@subscribe("archive.claim_archived", "jobs.claimed")
def on_jobs_claimed(event: Event) -> None:
    if experiment := Experiment.objects.filter(pk=event.target_id).first():
        claim_archived(experiment=experiment)
