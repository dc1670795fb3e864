"""What the archive does when something happens elsewhere, or in itself."""

from apps.archive.domain.links import link_jobs
from apps.archive.domain.masking_rules import current_rules
from apps.core.domain.masking import take_rules_from
from apps.core.domain.subscriptions import subscribe
from apps.core.models import Event
from apps.jobs.domain.jobs import jobs_in_spool
from apps.jobs.models import Job

take_rules_from(current_rules)


@subscribe("archive.link_collected_jobs", "jobs.collected")
def on_jobs_collected(event: Event) -> None:
    link_jobs(jobs=Job.objects.filter(pk__in=event.data["jobs"]), at=event.at)


@subscribe("archive.link_stored_jobs", "archive.stored")
def on_archive_stored(event: Event) -> None:
    stored = jobs_in_spool(cluster_id=int(event.target_id), spool_ids=event.data["job_ids"])
    link_jobs(jobs=stored, at=event.at)
