"""What waits and runs for each request: asked of the schedulers, stored by stage, and read as they said last."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import transaction

from apps.clusters.domain import adapter_of
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import CurrentJobs, KnowsQueue, SchedulerError
from apps.jobs.domain.proof import Claims
from apps.jobs.domain.records import clean_text
from apps.jobs.enums import Proof
from apps.jobs.models import Collection, QueueCount, QueueReading
from apps.production.domain.work_start import record_work_start
from apps.production.models import Request

log = logging.getLogger(__name__)

#: Spool and scheduler may round the moment of a submission differently.
_SAME_SUBMISSION = timedelta(seconds=2)


class Origin(NamedTuple):
    """What the environment of a submission named: a request, and one of its stages."""

    submitted_at: datetime
    request_key: str
    stage: str
    user: str = ""


#: The submissions that named a request, by their id in the spool; ids are recycled.
Origins = Mapping[str, Sequence[Origin]]


def read_queue(*, cluster: Cluster, origins_of: Callable[[Cluster, Sequence[str]], Origins], at: datetime) -> str:
    """Ask a cluster what waits and runs, and store it by request and stage; return why not, or an empty text.

    `origins_of` looks up the origins of jobs by their ids in the spool: the scheduler knows no environments. What
    was known stays, with its time, where the cluster cannot be asked.
    """
    try:
        scheduler = adapter_of(cluster)
        if not isinstance(scheduler, KnowsQueue):
            raise SchedulerError(f"the adapter {cluster.scheduler} cannot be asked what waits and runs")
        found = list(scheduler.current_jobs())
    except Exception as error:  # a third party's adapter may raise anything
        if not isinstance(error, SchedulerError):
            log.exception("scheduler adapter %s failed", cluster.scheduler)
        reason = clean_text(str(error) or type(error).__name__, 2000)
        QueueReading.objects.update_or_create(cluster=cluster, defaults={"last_error": reason})
        return reason
    origins = origins_of(cluster, sorted({one.spool_id for one in found}))
    store_queue(cluster=cluster, found=found, origins=origins, at=at)
    return ""


@transaction.atomic
def store_queue(*, cluster: Cluster, found: Iterable[CurrentJobs], origins: Origins, at: datetime) -> None:
    """Let these counts take the place of the cluster's earlier ones. Jobs of no request are left out."""
    QueueReading.objects.get_or_create(cluster=cluster)
    QueueReading.objects.select_for_update().get(cluster=cluster)
    counts: dict[tuple[int, str], QueueCount] = {}
    jobs = list(found)
    named = _named(cluster, jobs, origins)
    for one in jobs:
        origin = named.get((one.spool_id, one.submitted_at))
        if origin is None:
            continue
        request, stage = origin
        blank = QueueCount(cluster=cluster, request_id=request, stage=stage, newest_submitted_at=one.submitted_at)
        count = counts.setdefault((request, stage), blank)
        setattr(count, one.state, getattr(count, one.state) + one.jobs)
        count.newest_submitted_at = max(count.newest_submitted_at, one.submitted_at)
    QueueCount.objects.filter(cluster=cluster).delete()
    QueueCount.objects.bulk_create(counts.values())
    record_work_start(requests={request for request, _ in counts}, at=at)
    QueueReading.objects.filter(cluster=cluster).update(at=at, last_error="")


def _named(cluster: Cluster, jobs: list[CurrentJobs], origins: Origins) -> dict[tuple[str, datetime], tuple[int, str]]:
    """Return request and stage of each submission for which they are proven."""
    claims = Claims(
        cluster, keys={origin.request_key for each in origins.values() for origin in each}, spool_ids=origins
    )
    named = {}
    for one in jobs:
        for origin in origins.get(one.spool_id, ()):
            request = claims.requests.get(origin.request_key)
            if request is None or abs(origin.submitted_at - one.submitted_at) > _SAME_SUBMISSION:
                continue
            proof = claims.proof_of(
                origin.request_key,
                spool_id=one.spool_id,
                submitted_at=one.submitted_at,
                account=one.account,
                user=origin.user,
            )
            if proof != Proof.CLAIMED:
                named[one.spool_id, one.submitted_at] = (request.pk, clean_text(origin.stage.strip(), 64))
    return named


@dataclass(frozen=True)
class Waiting:
    """Jobs that have not ended."""

    queued: int = 0
    running: int = 0
    held: int = 0

    @property
    def all(self) -> int:
        return self.queued + self.running + self.held


def queue_known() -> tuple[datetime | None, list[str]]:
    """Return the oldest moment of the readings there are, and the clusters that have not said anything."""
    collected = set(Collection.objects.filter(cluster__collects=True).values_list("cluster__name", flat=True))
    answered = QueueReading.objects.filter(cluster__collects=True).values_list("cluster__name", "at")
    read = {name: at for name, at in answered if at is not None}
    return min(read.values(), default=None), sorted(collected - set(read))


def waiting_of(request: Request) -> dict[str, Waiting]:
    """Return the jobs of each stage that have not ended, as the queues said last, by its name in small letters."""
    sums: dict[str, Waiting] = {}
    for row in QueueCount.objects.filter(request=request):
        one = sums.get(row.stage.casefold(), Waiting())
        sums[row.stage.casefold()] = Waiting(one.queued + row.queued, one.running + row.running, one.held + row.held)
    return sums
