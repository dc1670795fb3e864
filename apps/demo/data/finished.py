"""Jobs that the portal submitted for the demo's requests before the simulation's history starts."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import JobRecord, JobState
from apps.clusters.schedulers.simulated import PARTITION
from apps.jobs.domain.collection.accounting import store_records
from apps.jobs.domain.collection.origin import attach_origin, record_array
from apps.jobs.models import Job
from apps.production.domain.content.stages import content_of
from apps.production.enums import PORTAL
from apps.production.models import Request
from apps.submission.domain.arrays.assignment import choose_cluster
from apps.submission.domain.arrays.files import list_files, stages_with_files, start_ledger
from apps.submission.domain.arrays.plan import plan_jobs
from apps.submission.domain.arrays.rows import NewArray
from apps.submission.domain.arrays.scripts import make_stage_plan
from apps.submission.domain.arrays.submissions import publish_event
from apps.submission.domain.dispatch.dispatch import refresh_progress
from apps.submission.enums import SubmissionState
from apps.submission.models import Submission

#: Lower than the IDs that the simulated cluster assigns.
_FIRST_ID = 1_000
_SPREAD = timedelta(hours=6)


def submit_stage(*, request: Request, name: str, cluster: Cluster, at: datetime) -> Submission:
    """Store and return a submission of all jobs of a stage, accepted by the cluster as an array."""
    stage = request.stages.get(name=name)
    if stage in stages_with_files(request):
        start_ledger(stage, list_files(stage), at=at)
    if not hasattr(request, "assignment"):
        choose_cluster(request=request, cluster=cluster, by=PORTAL, at=at)
    plan = make_stage_plan(key=request.key, content=content_of(request), position=stage.position)
    array = NewArray(request=request, cluster=cluster, plan=plan, tasks=stage.jobs or 1)
    sent = plan_jobs(array, by=PORTAL, at=at)
    accept(sent, at=at)
    return sent


def complete_stage(*, request: Request, name: str, at: datetime) -> None:
    """Store a completed job for each submitted job of a stage; the last one ended a minute ago."""
    sent = Submission.objects.select_related("cluster", "request__experiment").get(
        request=request, stage_name=name
    )
    store_ended(sent, list(records_of(sent, at - timedelta(minutes=1))), at=at)


def accept(sent: Submission, *, at: datetime) -> None:
    """Let the cluster accept a planned submission as an array."""
    sent.spool_id = str(_FIRST_ID + sent.pk)
    sent.state = SubmissionState.SENT
    sent.sending_at = at
    sent.sent_at = at
    sent.attempts = 1
    sent.save(update_fields=["spool_id", "state", "sending_at", "sent_at", "attempts"])
    record_array(
        cluster=sent.cluster, spool_id=sent.spool_id, request=sent.request, sent_at=at, at=at
    )
    publish_event("submission.sent", sent, at)


def store_ended(sent: Submission, records: Sequence[JobRecord], *, at: datetime) -> None:
    """Store jobs of a submission that ended, and count them."""
    store_records(cluster=sent.cluster, records=list(records), at=at)
    jobs = Job.objects.filter(cluster=sent.cluster, spool_id=sent.spool_id).values_list(
        "pk", flat=True
    )
    attach_origin(origins=dict.fromkeys(jobs, (sent.request.key, sent.stage_name)), at=at)
    refresh_progress(cluster=sent.cluster, at=at)


def records_of(sent: Submission, end: datetime) -> Iterator[JobRecord]:
    """Yield a record for each job of an array, all ended in the hours before `end`."""
    account = sent.request.experiment.key.lower()
    array = int(sent.spool_id)
    begin = sent.sent_at or sent.created_at
    limit = sent.asked["time_limit_seconds"]
    memory = sent.asked["memory_bytes"]
    longest = int(min(limit * 0.8, (end - begin).total_seconds() / 2 - 60))
    first = end - min((end - begin) / 2, _SPREAD)
    for task in range(sent.tasks):
        wall = longest * (70 + task * 37 % 30) // 100
        ended_at = first + (task + 1) * (end - first) / sent.tasks
        yield JobRecord(
            job_id=f"{array}_{task}",
            raw_id=array * 100_000 + task,
            spool_id=sent.spool_id,
            attempt=1,
            state=JobState.COMPLETED,
            exit_code=0,
            signal=0,
            submitted_at=begin,
            started_at=datetime.fromtimestamp(ended_at.timestamp() - wall, ended_at.tzinfo),
            ended_at=ended_at,
            host=f"node{task % 40:03d}",
            cpus=1,
            cpu_seconds=round(wall * 0.92, 3),
            wall_seconds=wall,
            max_memory_bytes=memory * (60 + task * 13 % 30) // 100,
            requested_memory_bytes=memory,
            time_limit_seconds=limit,
            partition=PARTITION,
            account=account,
            user=f"{account}pro",
            name=sent.name,
        )
