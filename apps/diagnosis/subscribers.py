"""What diagnosis does when something happens elsewhere."""

from apps.core.domain.subscriptions import subscribe
from apps.core.models import Event
from apps.diagnosis.domain.harvest import queue_harvests
from apps.diagnosis.domain.verdicts import follow_experiments
from apps.jobs.models import Job


@subscribe("diagnosis.queue_harvests", "jobs.linked")
def on_jobs_linked(event: Event) -> None:
    """Read the logs of collected jobs; read them again where the script arrived after the job.

    The script tells which services the job needs, and where its logs lie. A job whose script is here before its own
    turn among the collected has no harvest yet, and is read in that turn.
    """
    jobs = Job.objects.filter(pk__in=event.data["jobs"])
    if event.data["after"] == "archive.stored":
        jobs = jobs.filter(harvest__isnull=False)
    queue_harvests(job_ids=jobs.values_list("pk", flat=True), at=event.at)


@subscribe("diagnosis.follow_experiments", "account.mapped")
def on_account_mapped(event: Event) -> None:
    follow_experiments()
