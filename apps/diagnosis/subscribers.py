"""What diagnosis does when something happens elsewhere."""

from apps.archive.domain.links import link_jobs
from apps.core.domain.subscriptions import subscribe
from apps.core.models import Event
from apps.diagnosis.domain.harvest import queue_harvests
from apps.diagnosis.domain.request_report import freeze_report
from apps.diagnosis.domain.verdicts import follow_experiments
from apps.jobs.domain.jobs import jobs_in_spool
from apps.jobs.models import Job
from apps.production.models import Request


@subscribe("diagnosis.queue_harvests", "jobs.collected")
def on_jobs_collected(event: Event) -> None:
    """Tie the jobs to what was captured first: it tells which services they need, and where their logs lie."""
    link_jobs(jobs=Job.objects.filter(pk__in=event.data["jobs"]), at=event.at)
    queue_harvests(job_ids=event.data["jobs"], at=event.at)


@subscribe("diagnosis.harvest_captured_late", "archive.stored")
def on_archive_stored(event: Event) -> None:
    """Decide again on jobs that were collected before what was captured of them arrived."""
    jobs = jobs_in_spool(cluster_id=int(event.target_id), spool_ids=event.data["job_ids"])
    link_jobs(jobs=jobs, at=event.at)
    queue_harvests(job_ids=jobs.filter(harvest__isnull=False).values_list("pk", flat=True), at=event.at)


@subscribe("diagnosis.follow_experiments", "account.mapped")
def on_account_mapped(event: Event) -> None:
    follow_experiments()


@subscribe("diagnosis.freeze_report", "request.done", "request.done_partial", "request.cancel", "request.supersede")
def on_request_closed(event: Event) -> None:
    """Keep how it ran for good; one that never had its signatures has not run."""
    request = Request.objects.filter(pk=event.target_id, approved_at__isnull=False).first()
    if request is not None:
        freeze_report(request=request, at=event.at)
