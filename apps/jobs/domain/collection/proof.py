"""Prove which request a job belongs to.

Any user can set `OPSPORTAL_REQUEST`, so the variable alone proves nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import connection
from django.db.models import F, QuerySet

from apps.accounts.models import Experiment
from apps.clusters.domain import adapter_of
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import SchedulerError
from apps.core.domain.bulk import update_objects
from apps.jobs.domain.phases.logs import mark_log_phases
from apps.jobs.domain.records.conversion import hour_of
from apps.jobs.domain.totals.rollups import mark_dirty
from apps.jobs.enums import ClaimScope, MappedName, Proof
from apps.jobs.models import AccountMap, ClaimAcceptance, Job, SubmittedArray
from apps.production.domain.work_start import record_work_start
from apps.production.models import Request, Stage

#: The clocks of portal and scheduler may differ by this much.
SKEW = timedelta(minutes=5)
#: A job submitted longer than this after the array has a recycled ID.
_SAME_ARRAY = timedelta(days=1)
_PROOFS_LOCK = 4_716_007


class ProvenMembership:
    """Maps accounts and users of one cluster to experiments.

    The cluster's own map comes first, then the map for all clusters, then experiments of the same
    name. Where users choose the account themselves, as with HTCondor's `AccountingGroup`, an
    account proves nothing; a mapped user does.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.experiment_pk_by_key = {}
        for pk, key in Experiment.objects.values_list("pk", "key"):
            self.experiment_pk_by_key[key.casefold()] = pk
        maps = AccountMap.objects.filter(cluster=None) | AccountMap.objects.filter(cluster=cluster)
        rows = maps.order_by(F("cluster").asc(nulls_first=True)).values_list(
            "kind", "account", "experiment_id"
        )
        self._mapped = {(kind, name): experiment_pk for kind, name, experiment_pk in rows}
        try:
            self._accounts_are_enforced = getattr(
                adapter_of(cluster), "accounts_are_enforced", True
            )
        except SchedulerError:
            self._accounts_are_enforced = False

    def find_experiment_pk(self, account: str, user: str) -> int | None:
        """Return the key of the experiment that can see jobs of this account and user."""
        pk_of_user = self._mapped.get((MappedName.USER, user))
        if self._accounts_are_enforced:
            return self._pk_of_account(account) or pk_of_user
        return pk_of_user or self._pk_of_account(account)

    def proves(self, account: str, user: str, experiment_pk: int) -> bool:
        """Return whether account and user prove that a job belongs to an experiment."""
        if experiment_pk == self._mapped.get((MappedName.USER, user)):
            return True
        return self._accounts_are_enforced and experiment_pk == self._pk_of_account(account)

    def _pk_of_account(self, account: str) -> int | None:
        return self._mapped.get((MappedName.ACCOUNT, account)) or self.experiment_pk_by_key.get(
            account.casefold()
        )


class _AcceptedJobs(NamedTuple):
    """The jobs of an acceptance; `submitted_at` is None for all jobs of a user."""

    scope: str
    name: str
    submitted_at: datetime | None


class Claims:
    """Claims of jobs on one cluster with all data needed to prove them, read once per batch."""

    def __init__(self, cluster: Cluster, *, keys: Iterable[str], spool_ids: Iterable[str]) -> None:
        self.membership = ProvenMembership(cluster)
        self.requests = {}
        for request in Request.objects.filter(key__in=set(keys)):
            self.requests[request.key] = request
        of_cluster = {"cluster": cluster, "request__in": self.requests.values()}
        self._arrays: dict[str, list[SubmittedArray]] = defaultdict(list)
        for array in SubmittedArray.objects.filter(spool_id__in=set(spool_ids), **of_cluster):
            self._arrays[array.spool_id].append(array)
        self._accepted: dict[int, set[_AcceptedJobs]] = defaultdict(set)
        for acceptance in ClaimAcceptance.objects.filter(withdrawn_at=None, **of_cluster):
            self._accepted[acceptance.request_id].add(
                _AcceptedJobs(acceptance.scope, acceptance.name, acceptance.submitted_at)
            )

    def find_experiment_pk(self, key: str) -> int | None:
        """Return the primary key of the experiment of a request.

        For an unknown request, it is the experiment that the key of the request starts with.
        """
        request = self.requests.get(key)
        if request:
            return request.experiment_id
        return self.membership.experiment_pk_by_key.get(key.rpartition("-")[0].casefold())

    def find_proof(
        self,
        key: str,
        *,
        spool_id: str,
        submitted_at: datetime,
        account: str,
        user: str,
        job_id: str = "",
    ) -> Proof:
        """Return the proof that a job belongs to the request it names."""
        request = self.requests.get(key)
        experiment_pk = self.find_experiment_pk(key)
        if request and any(
            array.request_id == request.pk and -SKEW <= submitted_at - array.sent_at <= _SAME_ARRAY
            for array in self._arrays[spool_id]
        ):
            return Proof.SUBMITTED
        if experiment_pk and self.membership.proves(account, user, experiment_pk):
            return Proof.ACCOUNT
        covering = {
            _AcceptedJobs(ClaimScope.JOB.value, job_id, submitted_at),
            _AcceptedJobs(ClaimScope.ARRAY.value, spool_id, submitted_at),
            _AcceptedJobs(ClaimScope.USER.value, user, None),
        }
        if request and covering & self._accepted[request.pk]:
            return Proof.ACCEPTED
        return Proof.CLAIMED


def lock_proofs(*, shared: bool) -> None:
    """Lock the data that proofs are based on, in the caller's transaction.

    Those who prove jobs take the lock `shared`; changes of the data take it exclusively. Triggers
    take it too before experiments and sites are deleted, so that jobs never refer to a deleted one.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT pg_advisory_xact_lock{'_shared' if shared else ''}(%s)", [_PROOFS_LOCK]
        )


def prove_jobs(jobs: QuerySet[Job], *, at: datetime) -> list[Job]:
    """Prove the claims of jobs and store the result, in the caller's transaction.

    Return the jobs that changed. Request, experiment and proof change together, and the hours of
    changed jobs are recounted.
    """
    rows = list(
        jobs.select_for_update(of=("self",))
        .select_related("cluster")
        .exclude(claimed_key="")
        .order_by("pk")
    )
    changed: list[Job] = []
    for of_cluster in _by_cluster(rows):
        changed += _prove(of_cluster)
    update_objects(changed, ["request_key", "request", "release", "experiment", "proof"])
    mark_dirty({hour_of(job.ended_at) for job in changed})
    if changed:
        mark_log_phases(Job.objects.filter(pk__in=[job.pk for job in changed]))
    record_work_start(request_pks={job.request_id for job in changed if job.request_id}, at=at)
    return changed


def _by_cluster(jobs: Iterable[Job]) -> Iterable[list[Job]]:
    by_cluster: dict[int, list[Job]] = defaultdict(list)
    for job in jobs:
        by_cluster[job.cluster_id].append(job)
    return by_cluster.values()


def _prove(jobs: Sequence[Job]) -> list[Job]:
    """Set the proofs of jobs of one cluster without saving; return the jobs that changed."""
    keys = {job.claimed_key for job in jobs}
    spool_ids = {job.spool_id for job in jobs}
    claims = Claims(jobs[0].cluster, keys=keys, spool_ids=spool_ids)
    stages = Stage.objects.filter(request__in=claims.requests.values()).values_list(
        "request", "name", "release"
    )
    releases = {(request, name.casefold()): release for request, name, release in stages}
    changed = []
    for job in jobs:
        key = job.claimed_key
        before = (job.proof, job.experiment_id)
        job.proof = claims.find_proof(
            key,
            spool_id=job.spool_id,
            job_id=job.job_id,
            submitted_at=job.submitted_at,
            account=job.account,
            user=job.user,
        )
        if job.proof == Proof.CLAIMED:
            job.request_key = ""
            job.request = None
            job.experiment_id = claims.membership.find_experiment_pk(job.account, job.user)
        else:
            job.request_key = key
            job.request = claims.requests.get(key)
            job.experiment_id = claims.find_experiment_pk(key)
        job.release = releases.get((job.request_id or 0, job.stage.casefold()), "")
        if (job.proof, job.experiment_id) != before:
            changed.append(job)
    return changed
