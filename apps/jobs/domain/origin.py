"""Tie jobs to experiments and requests, and find out where their logs lie."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime

from django.db import transaction
from django.db.models import F

from apps.accounts.models import Experiment, Principal
from apps.clusters.domain import adapter_of
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import LogPaths, SchedulerError
from apps.core.domain.events import publish
from apps.jobs.domain.records import clean_text, hour_of, record_of
from apps.jobs.domain.rollups import mark_dirty
from apps.jobs.models import AccountMap, Job
from apps.production.domain.work_start import record_work_start
from apps.production.models import Request

_REQUEST_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def experiments_by_account(cluster: Cluster) -> Callable[[str], int | None]:
    """Return the rule from account to experiment: this cluster's map, everyone's map, else the account's own name."""
    by_key = {key.casefold(): pk for pk, key in Experiment.objects.values_list("pk", "key")}
    maps = AccountMap.objects.filter(cluster=None) | AccountMap.objects.filter(cluster=cluster)
    mapped = dict(maps.order_by(F("cluster").asc(nulls_first=True)).values_list("account", "experiment_id"))
    return lambda account: mapped.get(account) or by_key.get(account.casefold())


@transaction.atomic
def map_account(
    *, account: str, experiment: Experiment, cluster: Cluster | None, by: Principal, at: datetime
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
        Job.objects.bulk_update(named, ["request_key", "stage", "request", "experiment"], batch_size=500)
        mark_dirty({hour_of(job.ended_at) for job in named})
        record_work_start(requests={job.request_id for job in named if job.request_id}, at=at)
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
