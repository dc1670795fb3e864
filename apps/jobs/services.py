"""Collecting finished jobs, tying them to experiments and requests, and keeping the hourly totals."""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Count, F, Max, Q, Sum

from apps.accounts.models import Experiment
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import JobRecord, LogPaths, Scheduler, SchedulerError
from apps.clusters.schedulers.registry import SCHEDULERS
from apps.core.locks import alone_with
from apps.core.masking import Masker, rules_in_force
from apps.core.plugins import UnknownPlugin
from apps.core.services import beat_heart, publish
from apps.jobs.models import AccountMap, Collection, DirtyHour, HourlyEnds, HourlyTotals, Job
from apps.jobs.records import clean_text, differences, hour_of, key_of, record_of, values_of
from apps.jobs.selectors import TOTALS_HEART
from apps.production.models import Request

log = logging.getLogger(__name__)

#: How far the first collection looks back.
FIRST_REACH = timedelta(hours=24)
#: Accounting is written some seconds after a job ends, so each run looks again at the last minutes ...
OVERLAP = timedelta(minutes=15)
#: ... and every hour at the last day, for what came late or was corrected.
RECHECK_EVERY = timedelta(hours=1)
RECHECK_REACH = timedelta(hours=24)
#: The end of the window: jobs younger than this may not be written yet.
LAG = timedelta(seconds=2)
#: A long window is asked for in slices, and so many of them in one run; the next run goes on.
SLICE = timedelta(hours=6)
SLICES_A_RUN = 8
CHUNK = 500

_COLLECTOR_LOCK, _TOTALS_LOCK = 4_716_001, 4_716_002
_REQUEST_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True)
class Collected:
    """What one run brought in; `problem` says why it stopped, `caught_up` whether the window reached the present."""

    new: int = 0
    changed: int = 0
    problem: str = ""
    caught_up: bool = False


def collect_finished_jobs(*, cluster: Cluster, at: datetime) -> Collected | None:
    """Bring in what the cluster's accounting tells of jobs that ended; None when another process is at it.

    Each chunk of jobs commits with its event, so that a kill loses and doubles nothing: the next run asks again for
    the same window. A cluster that cannot be asked has the reason in its `Collection`; nothing is raised.
    """
    with alone_with(_COLLECTOR_LOCK, cluster.pk) as alone:
        if not alone:
            return None
        collection, _ = Collection.objects.get_or_create(
            cluster=cluster, defaults={"collected_until": at - FIRST_REACH, "rechecked_at": at}
        )
        return _collect(cluster, collection, at)


def _collect(cluster: Cluster, collection: Collection, at: datetime) -> Collected:
    recheck = collection.rechecked_at is None or at - collection.rechecked_at >= RECHECK_EVERY
    start = collection.collected_until - (RECHECK_REACH if recheck else OVERLAP)
    new = changed = 0
    mine = Collection.objects.filter(pk=collection.pk)
    try:
        scheduler = adapter_of(cluster)
        slices = list(_slices(start, at - LAG))
        for since, until in slices[:SLICES_A_RUN]:
            for chunk in _chunks(_ask(scheduler, since, until)):
                more_new, more_changed = store_records(cluster=cluster, records=chunk, at=at)
                new, changed = new + more_new, changed + more_changed
            mine.filter(collected_until__lt=until).update(collected_until=until)
    except SchedulerError as error:
        reason = clean_text(str(error), 2000)
        if reason != collection.last_error:  # else it was told before, and would be every 15 s
            log.warning("cluster %s cannot be collected: %s", cluster.name, error)
        mine.update(last_run_at=at, last_error=reason)
        return Collected(new, changed, problem=str(error))
    mine.update(last_run_at=at, last_success_at=at, last_error="")
    caught_up = len(slices) <= SLICES_A_RUN
    if recheck and caught_up:
        mine.update(rechecked_at=at)
    return Collected(new, changed, caught_up=caught_up)


def collect_again(*, cluster: Cluster, since: datetime, at: datetime) -> Collection:
    """Let the next runs begin at `since`. Jobs that are here already stay as they are."""
    collection, _ = Collection.objects.update_or_create(
        cluster=cluster, defaults={"collected_until": since, "rechecked_at": at}
    )
    return collection


def adapter_of(cluster: Cluster) -> Scheduler:
    """Return the cluster's scheduler adapter. Raises `SchedulerError` when it is unknown or its options are wrong."""
    try:
        return SCHEDULERS.get(cluster.scheduler)(cluster.name, cluster.options)
    except UnknownPlugin as error:
        raise SchedulerError(str(error)) from error
    except (ValueError, TypeError, LookupError) as error:
        raise SchedulerError(f"options of cluster {cluster.name}: {error}") from error


def _slices(since: datetime, until: datetime) -> Iterator[tuple[datetime, datetime]]:
    while since < until:
        end = min(since + SLICE, until)
        yield since, end
        since = end


def _ask(scheduler: Scheduler, since: datetime, until: datetime) -> Iterator[JobRecord]:
    try:
        yield from scheduler.finished_jobs(since=since, until=until)
    except SchedulerError:
        raise
    except Exception as error:  # a third party's adapter may raise anything; the other clusters go on
        log.exception("scheduler adapter %s failed", scheduler.name)
        raise SchedulerError(f"{type(error).__name__}: {error}") from error


def _chunks(records: Iterable[JobRecord]) -> Iterator[list[JobRecord]]:
    rest = iter(records)
    while chunk := list(islice(rest, CHUNK)):
        yield chunk


@transaction.atomic
def store_records(*, cluster: Cluster, records: Iterable[JobRecord], at: datetime) -> tuple[int, int]:
    """Insert the attempts that are new, correct those that differ; return how many of each.

    Publishes one `jobs.collected` for both, with their ids and those of them that failed.
    """
    wanted = {key_of(record): record for record in records}
    # One writer per cluster from here to the commit: so what is read as new stays new.
    Collection.objects.select_for_update().get(cluster=cluster)
    ids = {job_id for job_id, _, _ in wanted}
    known = {key_of(job): job for job in Job.objects.filter(cluster=cluster, job_id__in=ids)}
    masker = Masker(names=settings.CAPTURE_MASK_NAMES, key=settings.MASKING_KEY.encode(), rules=rules_in_force())
    values = {key: _without_secrets(values_of(record), masker) for key, record in wanted.items()}
    experiment_of = experiments_by_account(cluster)
    new = [
        Job(
            cluster=cluster,
            site_id=cluster.site_id,
            experiment_id=experiment_of(fields["account"]),
            collected_at=at,
            **fields,
        )
        for key, fields in values.items()
        if key not in known
    ]
    hours = {hour_of(job.ended_at) for job in new}
    changed = []
    for key, job in known.items():
        if key in values and (corrections := differences(job, values[key])):
            hours |= {hour_of(job.ended_at), hour_of(corrections.get("ended_at", job.ended_at))}
            changed.append(_correct(job, corrections, experiment_of, at))
    stored = Job.objects.bulk_create(new) + changed
    if stored:
        mark_dirty(hours)
        failed = [job.pk for job in stored if job.is_failed]
        data = {"jobs": [job.pk for job in stored], "failed": failed}
        publish(kind="jobs.collected", target=cluster, by="collector", at=at, data=data)
    return len(new), len(changed)


def _without_secrets(values: dict[str, Any], masker: Masker) -> dict[str, Any]:
    """Mask what `sbatch --export=TOKEN=…` and comments tell, by the rules for environments."""
    return {**values, **{name: masker.mask_text(values[name]) for name in ("submit_line", "comment")}}


def _correct(job: Job, corrections: dict[str, object], experiment_of: Callable[[str], int | None], at: datetime) -> Job:
    for name, value in corrections.items():
        setattr(job, name, value)
    row = Job.objects.filter(pk=job.pk)
    row.update(collected_at=at, **corrections)
    if "account" in corrections:
        row.filter(experiment=None).update(experiment_id=experiment_of(job.account))
    return job


def experiments_by_account(cluster: Cluster) -> Callable[[str], int | None]:
    """Return the rule from account to experiment: this cluster's map, everyone's map, else the account's own name."""
    by_key = {key.casefold(): pk for pk, key in Experiment.objects.values_list("pk", "key")}
    maps = AccountMap.objects.filter(cluster=None) | AccountMap.objects.filter(cluster=cluster)
    mapped = dict(maps.order_by(F("cluster").asc(nulls_first=True)).values_list("account", "experiment_id"))
    return lambda account: mapped.get(account) or by_key.get(account.casefold())


@transaction.atomic
def map_account(
    *, account: str, experiment: Experiment, cluster: Cluster | None, by: object, at: datetime
) -> AccountMap:
    """Let an account's jobs belong to an experiment, those here already that belong to none included."""
    account_map, _ = AccountMap.objects.update_or_create(
        cluster=cluster, account=account, defaults={"experiment": experiment}
    )
    jobs = Job.objects.filter(account=account, experiment=None)
    if cluster is not None:
        jobs = jobs.filter(cluster=cluster)
    hours = {hour_of(ended_at) for ended_at in jobs.select_for_update().values_list("ended_at", flat=True)}
    jobs.update(experiment=experiment)
    mark_dirty(hours)
    publish(kind="account.mapped", target=experiment, by=by, at=at, new=account[:64])
    return account_map


@transaction.atomic
def attach_origin(*, origins: Mapping[int, tuple[str, str]], at: datetime) -> int:
    """Note request key and stage, as captured with the job, on jobs that have none yet; return how many.

    `origins` maps a job's id to both. The environment is the job owner's word: a job whose account belongs to one
    experiment keeps the key as a text but is not counted for the request of another.
    """
    jobs = Job.objects.select_for_update().filter(pk__in=origins, request_key="").order_by("pk")
    named = []
    for job in jobs:
        key, stage = origins[job.pk]
        if _REQUEST_KEY.fullmatch(key):
            job.request_key, job.stage = key, clean_text(stage.strip(), 64)
            named.append(job)
    if named:
        _tie(named)
        Job.objects.bulk_update(named, ["request_key", "stage", "request", "experiment"], batch_size=CHUNK)
        mark_dirty({hour_of(job.ended_at) for job in named})
    return len(named)


def _tie(jobs: list[Job]) -> None:
    """Set request and experiment of jobs whose request key has just become known."""
    requests = {request.key: request for request in Request.objects.filter(key__in={job.request_key for job in jobs})}
    by_key = {key.casefold(): pk for pk, key in Experiment.objects.values_list("pk", "key")}
    for job in jobs:
        request = requests.get(job.request_key)
        if job.experiment_id is None:
            prefix = job.request_key.rpartition("-")[0].casefold()
            job.experiment_id = request.experiment_id if request else by_key.get(prefix)
        if request and request.experiment_id == job.experiment_id:
            job.request = request


def locate_log(*, job: Job, script: bytes, environment: Mapping[str, str], at: datetime) -> LogPaths | None:
    """Ask the job's scheduler where its output lies and store the answer; None when nobody knows.

    The path is not opened. Raises `SchedulerError` when the adapter cannot say just now.
    """
    scheduler = adapter_of(job.cluster)
    try:
        paths = scheduler.log_paths(record_of(job), script=script, environment=environment)
    except SchedulerError:
        raise
    except Exception as error:  # a third party's adapter may raise anything
        raise SchedulerError(f"{type(error).__name__}: {error}") from error
    if paths is None:
        return None
    job.log_path = clean_text(str(paths.stdout))
    job.error_log_path = "" if paths.stderr == paths.stdout else clean_text(str(paths.stderr))
    job.log_path_source = paths.source
    job.save(update_fields=["log_path", "error_log_path", "log_path_source"])
    return paths


def mark_dirty(hours: Iterable[datetime]) -> None:
    """Note, in the caller's transaction, that the totals of these hours must be counted anew."""
    DirtyHour.objects.bulk_create([DirtyHour(hour=hour) for hour in sorted(set(hours))])


def recompute_dirty_hours(*, at: datetime, limit: int = 500) -> int:
    """Count the totals of changed hours anew, newest first; return how many hours.

    When all are done the totals are right as of `at`, which is noted.
    """
    hours = list(DirtyHour.objects.order_by("-hour").values_list("hour", flat=True).distinct()[: limit + 1])
    for hour in hours[:limit]:
        recompute_hour(hour=hour)
    if len(hours) <= limit:
        beat_heart(name=TOTALS_HEART, at=at)
    return min(len(hours), limit)


@transaction.atomic
def recompute_hour(*, hour: datetime) -> None:
    """Count one hour's totals anew, if it has a note, and remove the notes that were there before the count.

    A note and its jobs commit together, and the count is a later statement than the removal: so each removed note's
    jobs are in the count, and those that commit meanwhile keep theirs.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [_TOTALS_LOCK, int(hour.timestamp()) // 3600])
    removed, _ = DirtyHour.objects.filter(hour=hour).delete()
    if not removed:
        return
    groups = ("cluster_id", "experiment_id", "request_key", "stage", "state")
    counted = (
        Job.objects.filter(ended_at__gte=hour, ended_at__lt=hour + timedelta(hours=1))
        .order_by()
        .values(*groups)
        .annotate(
            jobs=Count("pk"),
            wall=Sum("wall_seconds"),
            core=Sum(F("wall_seconds") * F("cpus")),
            cpu=Sum("cpu_seconds"),
            last=Max("ended_at"),
            retried=Count("pk", filter=Q(attempt__gt=1)),
        )
    )
    totals = [
        HourlyTotals(
            hour=hour,
            **{name: row[name] for name in groups},
            jobs=row["jobs"],
            wall_seconds=row["wall"],
            core_seconds=row["core"],
            cpu_seconds=row["cpu"],
            last_ended_at=row["last"],
            retried=row["retried"],
        )
        for row in counted
    ]
    HourlyTotals.objects.filter(hour=hour).delete()
    HourlyTotals.objects.bulk_create(totals)
    HourlyEnds.objects.filter(hour=hour).delete()
    HourlyEnds.objects.bulk_create(ends_of(totals))


def ends_of(totals: Iterable[HourlyTotals]) -> list[HourlyEnds]:
    """Return the sums of totals over requests and stages, not saved yet."""
    found: dict[tuple[object, ...], HourlyEnds] = {}
    for row in totals:
        key = {name: getattr(row, name) for name in ("hour", "cluster_id", "experiment_id", "state")}
        ends = found.setdefault(tuple(key.values()), HourlyEnds(**key, jobs=0, core_seconds=0))
        ends.jobs += row.jobs
        ends.core_seconds += row.core_seconds
    return list(found.values())
