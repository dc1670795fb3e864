"""Collect finished jobs from the accounting of each cluster."""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field
from datetime import date, datetime, timedelta
from functools import cache, partial
from itertools import compress, islice, repeat
from operator import itemgetter
from typing import Any, NamedTuple

from django.conf import settings
from django.db import transaction

from apps.clusters.domain import adapter_of, sites_named
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import Flagged, JobRecord, Scheduler, SchedulerError
from apps.clusters.schedulers.plausibility import doubts_of, problem_of
from apps.core.domain.bulk import copy_rows, next_keys, rows_where_any
from apps.core.domain.events import publish
from apps.core.domain.locks import exclusive_lock
from apps.core.domain.secrets.masking import Masker
from apps.core.errors import InvalidTransition
from apps.jobs.domain.collection.flagged import keep_flagged
from apps.jobs.domain.collection.masking_rules import current_rules
from apps.jobs.domain.collection.proof import ProvenMembership, lock_proofs, prove_jobs
from apps.jobs.domain.hosts import HostLookup
from apps.jobs.domain.phases.logs import mark_log_phases
from apps.jobs.domain.records.calendar_months import dropped_months, keep_months, month_of
from apps.jobs.domain.records.conversion import (
    RECORD_FIELDS,
    Key,
    clean_text,
    columns_of,
    find_differences,
    hour_of,
    key_of,
    record_digests,
)
from apps.jobs.domain.totals.rollups import mark_dirty
from apps.jobs.enums import FAILED_STATES, RecordSource
from apps.jobs.models import Collection, Job

log = logging.getLogger(__name__)

#: How far back the first collection starts.
FIRST_REACH = timedelta(hours=24)
#: Accounting lags behind, so each run reads the last 15 minutes again.
OVERLAP = timedelta(minutes=15)
#: Once an hour, a run reads the last day again for late records and corrections.
RECHECK_EVERY = timedelta(hours=1)
RECHECK_REACH = timedelta(hours=24)
#: Accounting may not have written jobs that finished within this time.
LAG = timedelta(seconds=2)
#: A long window is read in slices, and each run reads a limited number of them.
SLICE = timedelta(hours=6)
SLICES_A_RUN = 8
CHUNK = 5_000
#: Rows are built in batches of this size while the database stores the previous batch.
_ROWS_AT_ONCE = 250
#: Columns that identify an attempt within its cluster.
_KEY = ("job_id", "submitted_at", "attempt")

_COLLECTOR_LOCK = 4_716_001


@dataclass(frozen=True)
class Collected:
    """The result of one run.

    `problem` says why the run stopped early. `caught_up` says whether it reached the present.
    `flagged` counts bad records, including those that earlier runs have counted.
    """

    new: int = 0
    changed: int = 0
    flagged: int = 0
    problem: str = ""
    caught_up: bool = False


def collect_finished_jobs(*, cluster: Cluster, at: datetime) -> Collected | None:
    """Collect finished jobs from a cluster's accounting.

    Return None if another process is collecting from this cluster. Each chunk commits with its
    event; if the process is killed, the next run reads the same window again. Raises nothing if the
    cluster is unreachable; its `Collection` then has the error.
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
    stored = Collection.objects.filter(pk=collection.pk)
    try:
        scheduler = adapter_of(cluster)
        slices = list(_slices(start, at - LAG))
        for since, until in slices[:SLICES_A_RUN]:
            for chunk in split_into_chunks(_read_accounting(scheduler, since, until)):
                stored_counts = store_read(
                    cluster=cluster, read=chunk, source=RecordSource.ACCOUNTING, at=at
                )
                new += stored_counts.new
                changed += stored_counts.changed
                flagged += stored_counts.flagged
            stored.filter(collected_until__lt=until).update(collected_until=until)
    except SchedulerError as error:
        reason = clean_text(str(error), 2000)
        # Log a repeated error only once, not every 15 s.
        if reason != collection.last_error:
            log.warning("cluster %s cannot be collected: %s", cluster.name, error)
        stored.update(last_run_at=at, last_error=reason)
        return Collected(new, changed, flagged, problem=str(error))
    stored.update(last_run_at=at, last_success_at=at, last_error="")
    caught_up = len(slices) <= SLICES_A_RUN
    if recheck and caught_up:
        stored.update(rechecked_at=at)
    return Collected(new, changed, flagged, caught_up=caught_up)


def collect_again(*, cluster: Cluster, since: datetime, at: datetime) -> Collection:
    """Make the next run start at `since`. Existing jobs are kept."""
    collection, _ = Collection.objects.update_or_create(
        cluster=cluster, defaults={"collected_until": since, "rechecked_at": at}
    )
    return collection


def remove_jobs(*, cluster: Cluster) -> None:
    """Delete all jobs of a cluster in batches, and mark their hours for a recount.

    Collection must be turned off. Raises `InvalidTransition` while another process collects from
    the cluster.
    """
    with exclusive_lock(_COLLECTOR_LOCK, cluster.pk) as alone:
        if not alone:
            raise InvalidTransition(f"{cluster} is being collected now. Retry in a moment.")
        jobs = Job.objects.filter(cluster=cluster).order_by("pk")
        last = 0
        while rows := list(jobs.filter(pk__gt=last).values_list("pk", "ended_at")[:CHUNK]):
            with transaction.atomic():
                going = Job.objects.filter(pk__in=[pk for pk, _ in rows])
                mark_log_phases(going)
                going.delete()
                mark_dirty({hour_of(ended_at) for _, ended_at in rows})
            last = rows[-1][0]


def _slices(since: datetime, until: datetime) -> Iterator[tuple[datetime, datetime]]:
    while since < until:
        end = min(since + SLICE, until)
        yield since, end
        since = end


def _read_accounting(
    scheduler: Scheduler, since: datetime, until: datetime
) -> Iterator[JobRecord | Flagged]:
    try:
        yield from scheduler.finished_jobs(since=since, until=until)
    except SchedulerError:
        raise
    except Exception as error:
        # A third-party adapter may raise anything, and must not stop the other clusters.
        log.exception("scheduler adapter %s failed", scheduler.name)
        raise SchedulerError(f"{type(error).__name__}: {error}") from error


def split_into_chunks(
    records: Iterable[JobRecord | Flagged],
) -> Iterator[list[JobRecord | Flagged]]:
    """Yield lists of at most `CHUNK` records, one per transaction."""
    rest = iter(records)
    while chunk := list(islice(rest, CHUNK)):
        yield chunk


class StoredCounts(NamedTuple):
    """How many of the records that were read are new, changed and flagged."""

    new: int
    changed: int
    flagged: int


@transaction.atomic
def store_read(
    *, cluster: Cluster, read: Iterable[JobRecord | Flagged], source: RecordSource, at: datetime
) -> StoredCounts:
    """Store good records and keep bad ones."""
    keep_months()
    dropped = dropped_months()
    flagged: list[Flagged] = []
    records: list[JobRecord] = []
    for item in read:
        checked = flagged_if_wrong(item, at=at, dropped=dropped)
        if not isinstance(checked, Flagged):
            records.append(checked)
            continue
        flagged.append(checked)
        if checked.record:
            records.append(checked.record)

    keep_flagged(cluster=cluster, flagged=flagged, source=source, at=at)
    new, changed = store_records(cluster=cluster, records=records, at=at)
    return StoredCounts(new, changed, len(flagged))


def flagged_if_wrong(
    read: JobRecord | Flagged, *, at: datetime, dropped: AbstractSet[date] = frozenset()
) -> JobRecord | Flagged:
    """Return a record, flagged if its times, its figures or its month are not acceptable.

    A record of a `dropped` month is flagged because the database can no longer tell whether it is
    new.
    """
    if isinstance(read, Flagged):
        if read.record and (month := month_of(read.record.ended_at)) in dropped:
            return Flagged(read.raw, _archived(month))
        return read
    problem = problem_of(read, at=at)
    doubts = " ".join(doubts_of(read))
    if not problem and dropped and (month := month_of(read.ended_at)) in dropped:
        problem = _archived(month)
    if not problem and not doubts:
        return read
    raw = json.dumps(asdict(read), default=str)
    return Flagged(raw, problem) if problem else Flagged(raw, doubts, read)


def _archived(month: date) -> str:
    return f"It ended in {month:%Y-%m}, whose job records are archived. Restore the month first."


@dataclass
class _StoredJobs:
    """Attempts that were inserted or corrected, by primary key, and the hours of their ends.

    The hours are also those of ends that were corrected.
    """

    pks: list[int] = field(default_factory=list)
    failed_pks: list[int] = field(default_factory=list)
    hours: set[datetime] = field(default_factory=set)


@transaction.atomic
def store_records(
    *, cluster: Cluster, records: Iterable[JobRecord], at: datetime
) -> tuple[int, int]:
    """Insert new attempts and correct changed ones; return the number of each.

    Publishes one `jobs.collected` event with the IDs of all these jobs and of the failed ones.
    """
    by_key = {key_of(record): record for record in records}
    # Lock out other writers for this cluster until the commit.
    Collection.objects.select_for_update().get(cluster=cluster)
    rules = current_rules()
    digest = record_digests(settings.CAPTURE_MASK_NAMES, rules)

    stored = _stored_attempts(cluster, by_key)
    new = []
    # The records of stored attempts that differ now, and their digests, by primary key.
    changed = {}
    new_digests = {}
    for key, record in by_key.items():
        if key not in stored:
            new.append(record)
            continue
        pk, stored_digest = stored[key]
        new_digest = digest(record)
        if new_digest != stored_digest:
            changed[pk] = record
            new_digests[pk] = new_digest

    masker = Masker(
        names=settings.CAPTURE_MASK_NAMES, key=settings.MASKING_KEY.encode(), rules=rules
    )
    lock_proofs(shared=True)
    to_columns = partial(_columns_of, masker=masker, sites=_sites_of([*new, *changed.values()]))
    membership = ProvenMembership(cluster)
    inserted = _insert(cluster, new, to_columns, digest, membership, at)
    corrected = _StoredJobs()
    if changed:
        values = dict(zip(changed, _rows(to_columns(list(changed.values()))), strict=True))
        for pk, new_digest in new_digests.items():
            values[pk]["record_digest"] = new_digest
        corrected = _correct_all(values, membership, at)

    if inserted.pks or corrected.pks:
        mark_dirty(inserted.hours | corrected.hours)
        data = {
            "jobs": inserted.pks + corrected.pks,
            "failed": inserted.failed_pks + corrected.failed_pks,
        }
        publish(kind="jobs.collected", target=cluster, by="collector", at=at, data=data)
    return len(new), len(corrected.pks)


def _stored_attempts(cluster: Cluster, keys: Iterable[Key]) -> dict[Key, tuple[int, str]]:
    """Return primary key and record digest of the stored attempts of these jobs, by their keys."""
    job_ids = list({job_id for job_id, _, _ in keys})
    columns = (*_KEY, "id", "record_digest")
    rows = rows_where_any(Job, columns, "job_id", job_ids, cluster_id=cluster.pk)
    stored = {}
    for job_id, submitted_at, attempt, pk, record_digest in rows:
        stored[job_id, submitted_at, attempt] = (pk, record_digest)
    return stored


def _sites_of(records: Iterable[JobRecord]) -> dict[str, int | None]:
    """Return the primary key of each site by the name in the records; None for an empty name."""
    raw_names = {record.site for record in records}
    names = {raw_name: clean_text(raw_name.strip(), 64) for raw_name in raw_names}
    sites = sites_named(set(names.values()) - {""})
    return {raw_name: sites.get(name) for raw_name, name in names.items()}


def _columns_of(
    records: Sequence[JobRecord], *, masker: Masker, sites: Mapping[str, int | None]
) -> dict[str, Sequence[Any]]:
    """Return the column values of records, with secrets in free text masked.

    `site_id` is None for records without a site.
    """
    columns = columns_of(records)
    # These texts may contain secrets, such as `sbatch --export=TOKEN=…`.
    for name in ("submit_line", "comment"):
        columns[name] = [masker.mask_text(text) if text else "" for text in columns[name]]
    return columns | {"site_id": [sites[record.site] for record in records]}


def _rows(columns: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def _insert(
    cluster: Cluster,
    records: Sequence[JobRecord],
    to_columns: Callable[[Sequence[JobRecord]], dict[str, Sequence[Any]]],
    digest: Callable[[JobRecord], str],
    membership: ProvenMembership,
    at: datetime,
) -> _StoredJobs:
    """Insert attempts."""
    inserted = _StoredJobs()
    if not records:
        return inserted
    hosts = HostLookup(cluster, records)
    find_experiment_pk = cache(membership.find_experiment_pk)
    keys = iter(next_keys(Job, len(records)))
    names = (*RECORD_FIELDS, "site_id", "experiment_id")
    values_of = itemgetter(*names)

    def rows() -> Iterator[tuple[Any, ...]]:
        for start in range(0, len(records), _ROWS_AT_ONCE):
            part = records[start : start + _ROWS_AT_ONCE]
            own = list(islice(keys, len(part)))
            columns = to_columns(part)
            columns["site_id"] = [site or cluster.site_id for site in columns["site_id"]]
            columns["experiment_id"] = list(
                map(find_experiment_pk, columns["account"], columns["user"])
            )
            hosts.add_to(columns)
            inserted.pks += own
            inserted.failed_pks += compress(own, map(FAILED_STATES.__contains__, columns["state"]))
            inserted.hours.update(map(hour_of, columns["ended_at"]))
            constant = repeat(cluster.pk, len(part)), repeat(at, len(part))
            yield from zip(own, *constant, map(digest, part), *values_of(columns), strict=True)

    copy_rows(Job, ("id", "cluster_id", "collected_at", "record_digest", *names), rows())
    return inserted


def _correct_all(
    values: Mapping[int, dict[str, Any]], membership: ProvenMembership, at: datetime
) -> _StoredJobs:
    """Correct stored attempts to these values, by primary key; return those that differed.

    An attempt of which only the digest differs is as before for its readers.
    """
    jobs = Job.objects.filter(pk__in=values)
    mark_log_phases(jobs)
    corrected = _StoredJobs()
    for job in jobs:
        corrections = find_differences(job, values[job.pk])
        if corrections.keys() <= {"record_digest"}:
            Job.objects.filter(pk=job.pk).update(**corrections)
            continue
        corrected.hours.add(hour_of(job.ended_at))
        _correct(job, corrections, membership, at)
        corrected.hours.add(hour_of(job.ended_at))
        corrected.pks.append(job.pk)
        if job.is_failed:
            corrected.failed_pks.append(job.pk)
    if corrected.pks:
        # The corrections may have moved jobs to other hours.
        mark_log_phases(Job.objects.filter(pk__in=values))
    return corrected


def _correct(
    job: Job, corrections: dict[str, object], membership: ProvenMembership, at: datetime
) -> None:
    for name, value in corrections.items():
        setattr(job, name, value)
    stored = Job.objects.filter(pk=job.pk)
    stored.update(collected_at=at, **corrections)
    if corrections.keys() & {"account", "user"}:
        stored.filter(experiment=None).update(
            experiment_id=membership.find_experiment_pk(job.account, job.user)
        )
        prove_jobs(stored, at=at)
