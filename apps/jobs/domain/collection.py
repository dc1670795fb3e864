"""Collect finished jobs from the accounting of each cluster."""

import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from django.conf import settings
from django.db import transaction

from apps.clusters.domain import adapter_of
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import Flagged, JobRecord, Scheduler, SchedulerError
from apps.clusters.schedulers.plausibility import doubts_of, problem_of
from apps.core.domain.events import publish
from apps.core.domain.locks import exclusive_lock
from apps.core.domain.masking import Masker
from apps.core.errors import InvalidTransition
from apps.jobs.domain.flagged import keep_flagged
from apps.jobs.domain.masking_rules import current_rules
from apps.jobs.domain.proof import Membership, lock_proofs, prove_jobs
from apps.jobs.domain.records import clean_text, differences, hour_of, key_of, keyed_digest, values_of
from apps.jobs.domain.rollups import mark_dirty
from apps.jobs.enums import RecordSource
from apps.jobs.models import Collection, Job

log = logging.getLogger(__name__)

#: How far back the first collection starts.
FIRST_REACH = timedelta(hours=24)
#: Accounting lags behind the jobs, so each run reads the last minutes again ...
OVERLAP = timedelta(minutes=15)
#: ... and once an hour the last day, for late records and corrections.
RECHECK_EVERY = timedelta(hours=1)
RECHECK_REACH = timedelta(hours=24)
#: Jobs that finished later than this ago may not be written yet.
LAG = timedelta(seconds=2)
#: A long window is read in slices, a limited number per run.
SLICE = timedelta(hours=6)
SLICES_A_RUN = 8
CHUNK = 500

_COLLECTOR_LOCK = 4_716_001


@dataclass(frozen=True)
class Collected:
    """Result of one run; `problem` says why it stopped, `caught_up` whether it reached the present.

    `flagged` counts records that are wrong, again in each run that reads them.
    """

    new: int = 0
    changed: int = 0
    flagged: int = 0
    problem: str = ""
    caught_up: bool = False


def collect_finished_jobs(*, cluster: Cluster, at: datetime) -> Collected | None:
    """Collect finished jobs from a cluster's accounting; None if another process is doing so.

    Each chunk commits with its event; after a kill the next run reads the same window again. If the cluster is
    unreachable, the reason is in its `Collection`; nothing is raised.
    """
    with exclusive_lock(_COLLECTOR_LOCK, cluster.pk) as alone:
        if not alone:
            return None
        collection, _ = Collection.objects.get_or_create(
            cluster=cluster, defaults={"collected_until": at - FIRST_REACH, "rechecked_at": at}
        )
        return _collect(cluster, collection, at)


def _collect(cluster: Cluster, collection: Collection, at: datetime) -> Collected:
    recheck = collection.rechecked_at is None or at - collection.rechecked_at >= RECHECK_EVERY
    start = collection.collected_until - (RECHECK_REACH if recheck else OVERLAP)
    new = changed = flagged = 0
    mine = Collection.objects.filter(pk=collection.pk)
    try:
        scheduler = adapter_of(cluster)
        slices = list(_slices(start, at - LAG))
        for since, until in slices[:SLICES_A_RUN]:
            for chunk in chunks(_ask(scheduler, since, until)):
                more_new, more_changed, more_flagged = store_read(
                    cluster=cluster, read=chunk, source=RecordSource.ACCOUNTING, at=at
                )
                new, changed, flagged = new + more_new, changed + more_changed, flagged + more_flagged
            mine.filter(collected_until__lt=until).update(collected_until=until)
    except SchedulerError as error:
        reason = clean_text(str(error), 2000)
        if reason != collection.last_error:  # not every 15 s
            log.warning("cluster %s cannot be collected: %s", cluster.name, error)
        mine.update(last_run_at=at, last_error=reason)
        return Collected(new, changed, flagged, problem=str(error))
    mine.update(last_run_at=at, last_success_at=at, last_error="")
    caught_up = len(slices) <= SLICES_A_RUN
    if recheck and caught_up:
        mine.update(rechecked_at=at)
    return Collected(new, changed, flagged, caught_up=caught_up)


def collect_again(*, cluster: Cluster, since: datetime, at: datetime) -> Collection:
    """Let the next run start at `since`. Existing jobs are kept."""
    collection, _ = Collection.objects.update_or_create(
        cluster=cluster, defaults={"collected_until": since, "rechecked_at": at}
    )
    return collection


def remove_jobs(*, cluster: Cluster) -> None:
    """Delete all jobs of a cluster, by batches, each with the notes of its hours. Collection must be turned off.

    Raises `InvalidTransition` while another process collects from it.
    """
    with exclusive_lock(_COLLECTOR_LOCK, cluster.pk) as alone:
        if not alone:
            raise InvalidTransition(f"{cluster} is being collected now. Retry in a moment.")
        jobs = Job.objects.filter(cluster=cluster)
        while rows := list(jobs.values_list("pk", "ended_at")[:CHUNK]):
            with transaction.atomic():
                Job.objects.filter(pk__in=[pk for pk, _ in rows]).delete()
                mark_dirty({hour_of(ended_at) for _, ended_at in rows})


def _slices(since: datetime, until: datetime) -> Iterator[tuple[datetime, datetime]]:
    while since < until:
        end = min(since + SLICE, until)
        yield since, end
        since = end


def _ask(scheduler: Scheduler, since: datetime, until: datetime) -> Iterator[JobRecord | Flagged]:
    try:
        yield from scheduler.finished_jobs(since=since, until=until)
    except SchedulerError:
        raise
    except Exception as error:  # a third party's adapter may raise anything; the other clusters go on
        log.exception("scheduler adapter %s failed", scheduler.name)
        raise SchedulerError(f"{type(error).__name__}: {error}") from error


def chunks(records: Iterable[JobRecord | Flagged]) -> Iterator[list[JobRecord | Flagged]]:
    """Yield lists of records of the size of one transaction."""
    rest = iter(records)
    while chunk := list(islice(rest, CHUNK)):
        yield chunk


@transaction.atomic
def store_read(
    *, cluster: Cluster, read: Iterable[JobRecord | Flagged], source: RecordSource, at: datetime
) -> tuple[int, int, int]:
    """Store records and keep those that are wrong; return how many are new, changed, flagged."""
    every = [flagged_if_wrong(one, at=at) for one in read]
    flagged = [one for one in every if isinstance(one, Flagged)]
    records = [record for one in every if (record := one.record if isinstance(one, Flagged) else one)]
    keep_flagged(cluster=cluster, flagged=flagged, source=source, at=at)
    return *store_records(cluster=cluster, records=records, at=at), len(flagged)


def flagged_if_wrong(read: JobRecord | Flagged, *, at: datetime) -> JobRecord | Flagged:
    """Return a record, flagged if its times are impossible or its figures doubtful."""
    if isinstance(read, Flagged):
        return read
    problem, doubts = problem_of(read, at=at), " ".join(doubts_of(read))
    if not problem and not doubts:
        return read
    raw = json.dumps(asdict(read), default=str)
    return Flagged(raw, problem) if problem else Flagged(raw, doubts, read)


@transaction.atomic
def store_records(*, cluster: Cluster, records: Iterable[JobRecord], at: datetime) -> tuple[int, int]:
    """Insert new attempts and correct changed ones; return how many of each.

    Publishes one `jobs.collected` with the IDs of both and of the failed ones.
    """
    wanted = {key_of(record): record for record in records}
    # One writer per cluster until the commit.
    Collection.objects.select_for_update().get(cluster=cluster)
    ids = {job_id for job_id, _, _ in wanted}
    known = {key_of(job): job for job in Job.objects.filter(cluster=cluster, job_id__in=ids)}
    rules = current_rules()
    digests = {key: keyed_digest(repr((record, settings.CAPTURE_MASK_NAMES, rules))) for key, record in wanted.items()}
    masker = Masker(names=settings.CAPTURE_MASK_NAMES, key=settings.MASKING_KEY.encode(), rules=rules)
    values = {
        key: _without_secrets(values_of(record), masker) | {"record_digest": digests[key]}
        for key, record in wanted.items()
        if key not in known or known[key].record_digest != digests[key]
    }
    lock_proofs(shared=True)
    membership = Membership(cluster)
    new = [
        Job(
            cluster=cluster,
            site_id=cluster.site_id,
            experiment_id=membership.experiment_of(fields["account"], fields["user"]),
            collected_at=at,
            **fields,
        )
        for key, fields in values.items()
        if key not in known
    ]
    hours = {hour_of(job.ended_at) for job in new}
    changed = []
    for key, job in known.items():
        corrections = differences(job, values[key]) if key in values else {}
        if corrections.keys() == {"record_digest"}:
            Job.objects.filter(pk=job.pk).update(**corrections)
        elif corrections:
            hours |= {hour_of(job.ended_at), hour_of(corrections.get("ended_at", job.ended_at))}
            changed.append(_correct(job, corrections, membership, at))
    stored = Job.objects.bulk_create(new) + changed
    if stored:
        mark_dirty(hours)
        failed = [job.pk for job in stored if job.is_failed]
        data = {"jobs": [job.pk for job in stored], "failed": failed}
        publish(kind="jobs.collected", target=cluster, by="collector", at=at, data=data)
    return len(new), len(changed)


def _without_secrets(values: dict[str, Any], masker: Masker) -> dict[str, Any]:
    """Mask secrets in command line and comment, such as `sbatch --export=TOKEN=…`."""
    return {**values, **{name: masker.mask_text(values[name]) for name in ("submit_line", "comment")}}


def _correct(job: Job, corrections: dict[str, object], membership: Membership, at: datetime) -> Job:
    for name, value in corrections.items():
        setattr(job, name, value)
    row = Job.objects.filter(pk=job.pk)
    row.update(collected_at=at, **corrections)
    if corrections.keys() & {"account", "user"}:
        row.filter(experiment=None).update(experiment_id=membership.experiment_of(job.account, job.user))
        prove_jobs(row, at=at)
    return job
