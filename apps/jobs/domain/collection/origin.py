"""Assign jobs to experiments and requests, and locate their logs."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from django.db import transaction
from django.db.models import Q

from apps.accounts.models import Experiment, Principal
from apps.clusters.domain import adapter_of
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import LogPaths, SchedulerError
from apps.core.domain.bulk import update_objects
from apps.core.domain.events import publish
from apps.jobs.domain.collection.proof import ProvenMembership, lock_proofs, prove_jobs
from apps.jobs.domain.phases.logs import mark_log_phases
from apps.jobs.domain.records.conversion import clean_text, record_of
from apps.jobs.domain.totals.rollups import mark_dirty
from apps.jobs.enums import LogPathSource, MappedName, Proof
from apps.jobs.models import AccountMap, Job, SubmittedArray
from apps.production.models import Request

_REQUEST_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@transaction.atomic
def map_account(
    *,
    account: str,
    experiment: Experiment,
    cluster: Cluster | None,
    by: Principal,
    at: datetime,
    kind: MappedName = MappedName.ACCOUNT,
) -> AccountMap:
    """Assign the jobs of an account or user to an experiment.

    Existing jobs follow with `claim_jobs`.
    """
    account_map, _ = AccountMap.objects.update_or_create(
        cluster=cluster, kind=kind, account=account, defaults={"experiment": experiment}
    )
    publish(kind="account.mapped", target=experiment, by=by, at=at, new=account[:64])
    return account_map


@transaction.atomic
def claim_jobs(*, experiment: Experiment, at: datetime) -> int:
    """Assign existing jobs to an experiment by account or user; return their number.

    Only jobs without an experiment are assigned.

    Claims of requests are proven again. The lock waits for collectors that read the maps before the
    change; later ones read the new maps. Repeating the call changes nothing.
    """
    lock_proofs(shared=False)
    claimed = 0
    for cluster in Cluster.objects.all():
        membership = ProvenMembership(cluster)
        undecided = Job.objects.filter(Q(experiment=None) | Q(proof=Proof.CLAIMED), cluster=cluster)
        for account, user in undecided.order_by().values_list("account", "user").distinct():
            jobs = undecided.filter(account=account, user=user)
            if membership.find_experiment_pk(account, user) == experiment.pk:
                without = jobs.filter(experiment=None)
                mark_dirty(without.datetimes("ended_at", "hour", tzinfo=UTC))
                mark_log_phases(without)
                claimed += without.update(experiment=experiment)
            if membership.proves(account, user, experiment.pk):
                prove_jobs(jobs.filter(proof=Proof.CLAIMED), at=at)
    publish(kind="jobs.claimed", target=experiment, by="collector", at=at, data={"jobs": claimed})
    return claimed


@transaction.atomic
def attach_origin(*, origins: Mapping[int, tuple[str, str]], at: datetime) -> int:
    """Store request key and stage of jobs that have none yet; return the number of jobs.

    `origins` has both by primary key of the job, as read from the job's environment. A job counts
    for the request only if the claim is proven; see `proof`.
    """
    # Take this lock before the rows, as `claim_jobs` does.
    lock_proofs(shared=True)
    jobs = Job.objects.select_for_update().filter(pk__in=origins, claimed_key="").order_by("pk")
    named = [job for job in jobs if _REQUEST_KEY.fullmatch(origins[job.pk][0])]
    for job in named:
        job.claimed_key, stage = origins[job.pk]
        job.stage = clean_text(stage.strip(), 64)
    update_objects(named, ["claimed_key", "stage"])
    prove_jobs(Job.objects.filter(pk__in=[job.pk for job in named]), at=at)
    return len(named)


@transaction.atomic
def record_array(
    *, cluster: Cluster, spool_id: str, request: Request, sent_at: datetime, at: datetime
) -> None:
    """Record an array that the portal submitted, and prove its jobs.

    This includes jobs that were collected before.
    """
    lock_proofs(shared=False)
    SubmittedArray.objects.get_or_create(
        cluster=cluster, spool_id=spool_id, sent_at=sent_at, request=request
    )
    prove_jobs(Job.objects.filter(cluster=cluster, spool_id=spool_id, proof=Proof.CLAIMED), at=at)


def locate_log(
    *, job: Job, script: bytes, environment: Mapping[str, str], at: datetime
) -> LogPaths | None:
    """Ask the scheduler for the log paths of a job and store them; None if they are unknown.

    The paths are not opened. Raises `SchedulerError` if the adapter cannot answer now.
    """
    scheduler = adapter_of(job.cluster)
    try:
        paths = scheduler.log_paths(record_of(job), script=script, environment=environment)
    except SchedulerError:
        raise
    except Exception as error:
        # A third-party adapter may raise anything.
        raise SchedulerError(f"{type(error).__name__}: {error}") from error
    if paths is None:
        return None
    job.log_path = clean_text(str(paths.stdout))
    if paths.stderr == paths.stdout:
        job.error_log_path = ""
    else:
        job.error_log_path = clean_text(str(paths.stderr))
    job.log_path_source = paths.source
    job.save(update_fields=["log_path", "error_log_path", "log_path_source"])
    return paths


class LogLocation(NamedTuple):
    """The paths of a job's log and stderr, and their source; empty if unknown.

    `error_path` is empty if stderr goes to the same file.
    """

    path: str
    error_path: str
    source: str

    @property
    def source_label(self) -> str:
        return LogPathSource(self.source).label if self.source else ""


def log_location(job: Job) -> LogLocation:
    """Return the location of a job's log, from the scheduler or, if not asked yet, accounting."""
    if job.log_path:
        return LogLocation(job.log_path, job.error_log_path, job.log_path_source)
    paths = record_of(job).known_paths()
    if paths is None:
        return LogLocation("", "", "")
    error_path = "" if paths.stderr == paths.stdout else str(paths.stderr)
    return LogLocation(str(paths.stdout), error_path, LogPathSource.ACCOUNTING)
