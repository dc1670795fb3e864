"""Queued and running jobs of each request by stage, as of the last reading of the schedulers."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import NamedTuple

from django.db import transaction
from django.db.models import Count, Q

from apps.clusters.domain import adapter_of
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import CurrentJobs, Flagged, KnowsQueue, SchedulerError
from apps.jobs.domain.collection.flagged import keep_flagged
from apps.jobs.domain.collection.proof import SKEW, Claims
from apps.jobs.domain.live.live import ProvenStage, ProvenStages, store_live
from apps.jobs.domain.records.conversion import clean_text
from apps.jobs.enums import Proof, RecordSource
from apps.jobs.models import Job, QueueCount, QueueReading
from apps.production.domain.work_start import record_work_start
from apps.production.models import Request

log = logging.getLogger(__name__)

#: Spool and scheduler may round a submission time differently.
_SAME_SUBMISSION = timedelta(seconds=2)


class Origin(NamedTuple):
    """The request and stage named in the environment of a submission, and its user."""

    submitted_at: datetime
    request_key: str
    stage: str
    user: str = ""


#: Submissions that name a request, by spool ID. IDs are recycled.
Origins = Mapping[str, Sequence[Origin]]


def read_queue(
    *, cluster: Cluster, origins_of: Callable[[Cluster, Sequence[str]], Origins], at: datetime
) -> str:
    """Read the queue of a cluster and store it by request and stage; return the error, or "".

    `origins_of` looks up origins by spool ID, because schedulers do not report environments. If the
    cluster is unreachable, the previous counts are kept with their time.
    """
    try:
        scheduler = adapter_of(cluster)
        if not isinstance(scheduler, KnowsQueue):
            raise SchedulerError(f"the adapter {cluster.scheduler} cannot be asked for its queue")
        answer = list(scheduler.current_jobs())
    except Exception as error:
        # A third-party adapter may raise anything.
        if not isinstance(error, SchedulerError):
            log.exception("scheduler adapter %s failed", cluster.scheduler)
        reason = clean_text(str(error) or type(error).__name__, 2000)
        QueueReading.objects.update_or_create(cluster=cluster, defaults={"last_error": reason})
        return reason

    jobs = [item for item in answer if not isinstance(item, Flagged)]
    flagged = [item for item in answer if isinstance(item, Flagged)]
    keep_flagged(cluster=cluster, flagged=flagged, source=RecordSource.QUEUE, at=at)
    origins = origins_of(cluster, sorted({current.spool_id for current in jobs}))
    store_queue(cluster=cluster, jobs=jobs, origins=origins, at=at)
    return ""


@transaction.atomic
def store_queue(
    *, cluster: Cluster, jobs: Iterable[CurrentJobs], origins: Origins, at: datetime
) -> None:
    """Store a reading of a cluster; only rows that changed are written."""
    QueueReading.objects.get_or_create(cluster=cluster)
    QueueReading.objects.select_for_update().get(cluster=cluster)

    jobs, stages = _prove_origins(cluster, list(jobs), origins)
    counts: dict[ProvenStage, QueueCount] = {}
    for current in jobs:
        proven = stages.get((current.spool_id, current.submitted_at))
        if proven is None:
            continue
        blank = QueueCount(
            cluster=cluster,
            request_id=proven.request_pk,
            stage=proven.stage,
            newest_submitted_at=current.submitted_at,
        )
        count = counts.setdefault(proven, blank)
        setattr(count, current.state, getattr(count, current.state) + current.jobs)
        count.newest_submitted_at = max(count.newest_submitted_at, current.submitted_at)

    _replace_counts(cluster, counts)
    store_live(cluster=cluster, jobs=jobs, stages=stages)
    record_work_start(request_pks={proven.request_pk for proven in counts}, at=at)
    QueueReading.objects.filter(cluster=cluster).update(at=at, last_error="")


def _replace_counts(cluster: Cluster, counts: Mapping[ProvenStage, QueueCount]) -> None:
    """Write the counts of requests that changed."""
    fields = ("queued", "running", "held", "newest_submitted_at")
    for stored in QueueCount.objects.filter(cluster=cluster):
        count = counts.get(ProvenStage(stored.request_id, stored.stage))
        if count is None:
            stored.delete()
        elif any(getattr(stored, name) != getattr(count, name) for name in fields):
            count.pk = stored.pk
            count.save()
        else:
            count.pk = stored.pk
    QueueCount.objects.bulk_create(count for count in counts.values() if count.pk is None)


def _prove_origins(
    cluster: Cluster, jobs: list[CurrentJobs], origins: Origins
) -> tuple[list[CurrentJobs], ProvenStages]:
    """Return the jobs, and the stages that their submissions are proven to belong to.

    Proven jobs get the time at which their submission was captured. A scheduler gives each requeued
    job another one; of the portal's arrays it is known that nobody else used their ID since.
    """
    keys = {origin.request_key for origin in chain.from_iterable(origins.values())}
    claims = Claims(cluster, keys=keys, spool_ids=origins)
    stages: dict[tuple[str, datetime], ProvenStage] = {}
    jobs_as_submitted = []
    for current in jobs:
        submitted_at = current.submitted_at
        for origin in origins.get(current.spool_id, ()):
            request = claims.requests.get(origin.request_key)
            if request is None:
                continue
            proof = claims.find_proof(
                origin.request_key,
                spool_id=current.spool_id,
                submitted_at=current.submitted_at,
                account=current.account,
                user=origin.user,
            )
            later = current.submitted_at - origin.submitted_at
            is_requeued = proof == Proof.SUBMITTED and later > _SAME_SUBMISSION
            if proof == Proof.CLAIMED or not (is_requeued or abs(later) <= _SAME_SUBMISSION):
                continue
            submitted_at = origin.submitted_at
            stage = clean_text(origin.stage.strip(), 64)
            stages[current.spool_id, submitted_at] = ProvenStage(request.pk, stage)
        jobs_as_submitted.append(replace(current, submitted_at=submitted_at))
    return jobs_as_submitted, stages


@dataclass(frozen=True)
class Waiting:
    """Numbers of unfinished jobs.

    `doubtful` jobs may be counted as finished too: they ended at about the time of the reading.
    """

    queued: int = 0
    running: int = 0
    held: int = 0
    doubtful: int = 0

    @property
    def all(self) -> int:
        return self.queued + self.running + self.held

    def at_most(self, jobs: int) -> "Waiting":
        """Return a copy with at most `jobs` jobs, leaving out only doubtful ones."""
        over = min(self.doubtful, max(0, self.all - max(0, jobs)))
        return replace(self.less(over), doubtful=self.doubtful - over)

    def less(self, finished: int) -> "Waiting":
        """Return a copy without finished jobs, subtracted from running, then from queued jobs."""
        queued = max(0, self.queued - max(0, finished - self.running))
        return replace(self, queued=queued, running=max(0, self.running - finished))


def queue_known() -> tuple[datetime | None, list[str]]:
    """Return the time of the oldest reading, and the names of clusters without one."""
    clusters = Cluster.objects.filter(~Q(collection=None) | ~Q(queue_reading=None), collects=True)
    read = dict(clusters.values_list("name", "queue_reading__at"))
    return min(filter(None, read.values()), default=None), sorted(
        name for name, at in read.items() if at is None
    )


def waiting_of(request: Request) -> dict[str, Waiting]:
    """Return the unfinished jobs of each stage, by its name in lower case.

    Jobs that finished since the last reading are subtracted: they already count as finished. A
    scheduler's list may be older than its response, and its clock may be slow.
    """
    queue_counts = list(
        QueueCount.objects.filter(request=request).select_related("cluster__queue_reading")
    )
    if not queue_counts:
        return {}

    read_at = {}
    for queue_count in queue_counts:
        if reading := getattr(queue_count.cluster, "queue_reading", None):
            read_at[queue_count.cluster_id] = reading.at
    about = Q(pk=None)
    since = Q(pk=None)
    for cluster, moment in read_at.items():
        listed = Q(cluster=cluster, submitted_at__lte=moment)
        about |= listed & (Q(ended_at__gt=moment - SKEW) | Q(collected_at__gt=moment))
        since |= listed & Q(ended_at__gt=moment)
    ended = Job.objects.filter(about, request_key=request.key, experiment=request.experiment_id)
    counts = (
        ended.order_by()
        .values_list("cluster_id", "stage")
        .annotate(all=Count("pk"), since=Count("pk", since))
    )
    gone: Counter[tuple[int, str]] = Counter()
    doubtful: Counter[tuple[int, str]] = Counter()
    for cluster, stage, jobs, later in counts:
        gone[cluster, stage.casefold()] += later
        doubtful[cluster, stage.casefold()] += jobs - later

    sums: dict[str, Waiting] = {}
    for queue_count in queue_counts:
        stage = queue_count.stage.casefold()
        key = (queue_count.cluster_id, stage)
        left = Waiting(queue_count.queued, queue_count.running, queue_count.held).less(gone[key])
        before = sums.get(stage, Waiting())
        sums[stage] = Waiting(
            queued=before.queued + left.queued,
            running=before.running + left.running,
            held=before.held + left.held,
            doubtful=before.doubtful + doubtful[key],
        )
    return sums
