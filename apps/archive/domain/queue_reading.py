"""What waits and runs for each request, asked of the schedulers; the archive knows which request a job is for."""

import logging
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import transaction

from apps.archive.models import ArchivedJob
from apps.clusters.domain import adapter_of
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import CurrentJobs, KnowsQueue, SchedulerError
from apps.jobs.domain.origin import experiments_by_account
from apps.jobs.domain.records import clean_text
from apps.jobs.models import QueueCount, QueueReading
from apps.production.models import Request

log = logging.getLogger(__name__)

#: Spool and scheduler may round the moment of a submission differently.
_SAME_SUBMISSION = timedelta(seconds=2)
_CHUNK = 2_000


def read_queue(*, cluster: Cluster, at: datetime) -> str:
    """Ask a cluster what waits and runs, and store it by request and stage; return why not, or an empty text.

    What was known stays, with its time, where the cluster cannot be asked.
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
    store_queue(cluster=cluster, found=found, at=at)
    return ""


@transaction.atomic
def store_queue(*, cluster: Cluster, found: Iterable[CurrentJobs], at: datetime) -> None:
    """Let these counts take the place of the cluster's earlier ones. Jobs of no request are left out."""
    QueueReading.objects.get_or_create(cluster=cluster)
    QueueReading.objects.select_for_update().get(cluster=cluster)
    counts: dict[tuple[int, str], QueueCount] = {}
    jobs = list(found)
    named = _named(cluster, jobs)
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
    QueueReading.objects.filter(cluster=cluster).update(at=at, last_error="")


def _named(cluster: Cluster, jobs: list[CurrentJobs]) -> dict[tuple[str, datetime], tuple[int, str]]:
    """Return request and stage of each submission that was captured with them.

    The environment is its owner's word: where the account belongs to another experiment than the request, it is not
    believed.
    """
    known: dict[str, list[tuple[datetime, str, str]]] = defaultdict(list)
    ids = sorted({one.spool_id for one in jobs})
    for first in range(0, len(ids), _CHUNK):
        rows = ArchivedJob.objects.filter(cluster=cluster, job_id__in=ids[first : first + _CHUNK]).exclude(
            request_key=""
        )
        for job_id, at, key, stage in rows.values_list("job_id", "submitted_at", "request_key", "stage"):
            known[job_id].append((at, key, stage))
    keys = {key for rows in known.values() for _, key, _ in rows}
    requests = {
        key: (pk, of) for key, pk, of in Request.objects.filter(key__in=keys).values_list("key", "pk", "experiment_id")
    }
    experiment_of = experiments_by_account(cluster)
    named = {}
    for one in jobs:
        for at, key, stage in known.get(one.spool_id, []):
            request, experiment = requests.get(key, (None, None))
            if (
                request
                and abs(at - one.submitted_at) <= _SAME_SUBMISSION
                and experiment_of(one.account) in {None, experiment}
            ):
                named[one.spool_id, one.submitted_at] = (request, clean_text(stage.strip(), 64))
    return named
