"""Jobs of the demo's requests that were produced before the simulated cluster's own history begins."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import JobRecord, JobState
from apps.clusters.schedulers.simulated import PARTITION
from apps.core.domain.events import events_of
from apps.jobs.domain.collection import store_records
from apps.jobs.domain.origin import attach_origin
from apps.jobs.domain.rollups import recompute_dirty_hours
from apps.jobs.models import Job
from apps.production.enums import RequestState
from apps.production.models import Request, Stage

_PRODUCED = [RequestState.DATA_QUALITY, RequestState.DONE, RequestState.DONE_PARTIAL]
#: Below the IDs that the simulated cluster gives.
_FIRST_ID = 1_000
_HALF_DAY = timedelta(hours=12)


def store_finished_jobs(*, cluster: Cluster, at: datetime) -> int:
    """Store one completed job for each requested one of the produced requests that have none; return how many."""
    stored = 0
    produced = Request.objects.filter(state__in=_PRODUCED, job_records=None, work_began_at__isnull=False)
    for request in produced.order_by("pk"):
        ended_at = events_of(request).filter(new=RequestState.COMPLETING).values_list("at", flat=True).first()
        stages = list(request.stages.order_by("position"))
        if ended_at is None or request.work_began_at is None:
            continue
        span = (ended_at - request.work_began_at) / len(stages)
        for stage in stages:
            begin = request.work_began_at + stage.position * span
            records = list(_records(stage, request, begin, begin + span))
            stored += store_records(cluster=cluster, records=records, at=at)[0]
            spool_id = records[0].spool_id if records else ""
            jobs = Job.objects.filter(cluster=cluster, spool_id=spool_id, claimed_key="").values_list("pk", flat=True)
            attach_origin(origins=dict.fromkeys(jobs, (request.key, stage.name)), at=at)
    recompute_dirty_hours(at=at)
    return stored


def _records(stage: Stage, request: Request, begin: datetime, end: datetime) -> Iterator[JobRecord]:
    """Yield a job of a stage for each requested one, all ended in the last half day of its time."""
    account, array, count = request.experiment.key.lower(), _FIRST_ID + stage.pk, stage.jobs or 0
    limit, memory = stage.wall_seconds or 3600, stage.memory_bytes or 2_000_000_000
    longest = int(min(limit * 0.8, (end - begin).total_seconds() / 2 - 60))
    first = end - min((end - begin) / 2, _HALF_DAY)
    for task in range(count):
        wall = longest * (70 + task * 37 % 30) // 100
        ended_at = first + (task + 1) * (end - first) / count
        yield JobRecord(
            job_id=f"{array}_{task}",
            raw_id=array * 100_000 + task,
            spool_id=str(array),
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
            name=stage.name,
        )
