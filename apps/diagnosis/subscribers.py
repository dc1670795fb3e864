"""Event handlers of diagnosis."""

from apps.clusters.models import Cluster
from apps.core.domain.subscriptions import subscribe
from apps.core.models import Event
from apps.diagnosis.domain.causes.impact.recount import mark_incidents, mark_met_by
from apps.diagnosis.domain.causes.impact.retryable import report_retryable
from apps.diagnosis.domain.reading.attempts import follow_attempts
from apps.diagnosis.domain.reading.line_templates import queue_completed
from apps.diagnosis.domain.verdicts.harvest import queue_harvests
from apps.diagnosis.domain.verdicts.judged_jobs import assign_experiments
from apps.jobs.enums import Proof
from apps.jobs.models import Job
from apps.production.models import Request
from apps.statusboard.models import Incident


@subscribe("diagnosis.queue_harvests", "jobs.linked")
def on_jobs_linked(event: Event) -> None:
    """Update the advice on earlier attempts of collected jobs, and analyse the logs of these jobs.

    If the script of a job is archived after the job was collected, its log is analysed again,
    because the script names the log paths and the services that the job needs. If the script is
    archived first, the analysis starts when the job is collected.
    """
    if cluster := Cluster.objects.filter(pk=event.target_id).first():
        follow_attempts(cluster=cluster, job_pks=event.data["jobs"])
    jobs = Job.objects.filter(pk__in=event.data["jobs"])
    if event.data["after"] == "archive.stored":
        jobs = jobs.filter(harvest__isnull=False)
    queue_harvests(job_pks=jobs.values_list("pk", flat=True), at=event.at)
    queue_completed(job_pks=event.data["jobs"], at=event.at)


@subscribe("diagnosis.assign_experiments", "jobs.claimed")
def on_jobs_claimed(event: Event) -> None:
    assign_experiments(jobs=Job.objects.filter(experiment=int(event.target_id)))


@subscribe("diagnosis.follow_claims", "claims.accepted", "claims.withdrawn")
def on_claims_decided(event: Event) -> None:
    request = Request.objects.filter(pk=event.target_id).first()
    if request is not None:
        assign_experiments(
            jobs=Job.objects.filter(
                claimed_key=request.key, proof__in=[Proof.CLAIMED, Proof.ACCEPTED]
            )
        )


@subscribe("diagnosis.count_impact_of_jobs", "jobs.linked")
def on_jobs_met_incidents(event: Event) -> None:
    """Mark incidents that collected jobs were exposed to, or whose baseline includes the jobs."""
    mark_met_by(Job.objects.filter(pk__in=event.data["jobs"]))


@subscribe(
    "diagnosis.count_impact",
    "incident.opened",
    "incident.closed",
    "incident.reopened",
    "incident.corrected",
    "incident.stale",
    "incident.renewed",
    "incident.merged",
    "incident.split",
    "incident.divided",
)
def on_incident_changed(event: Event) -> None:
    """Mark an incident whose times changed, and one that it was merged into or split from."""
    others = []
    for name in ("into", "from"):
        if name in event.data:
            others.append(event.data[name])
    mark_incidents([int(event.target_id), *others])


@subscribe("diagnosis.report_retryable", "incident.closed")
def on_incident_closed(event: Event) -> None:
    """Publish how many jobs failed because of a closed incident and were not retried."""
    incident = Incident.objects.filter(pk=event.target_id).select_related("service").first()
    if incident is not None:
        report_retryable(incident=incident, at=event.at)


@subscribe("diagnosis.count_impact_by_experiment", "jobs.claimed")
def on_jobs_given_to_experiment(event: Event) -> None:
    mark_met_by(Job.objects.filter(experiment=int(event.target_id)))
