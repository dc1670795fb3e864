"""Other clusters on which failed jobs of requests can be retried, the one with room first."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import F, Q, Sum

from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import SchedulerError
from apps.clusters.schedulers.options import SubmissionOptions
from apps.production.domain.outlook import read_outlook
from apps.submission.domain.arrays.rows import adapter_that_submits, options_of
from apps.submission.enums import IN_SCHEDULER, SubmissionState
from apps.submission.models import Submission


@dataclass
class _Target:
    """A cluster to which retries can go.

    `jobs` are planned or in its scheduler, `chosen` are the retries that were sent there since, by
    experiment.
    """

    cluster: Cluster
    options: SubmissionOptions
    jobs: Counter[int]
    chosen: Counter[int] = field(default_factory=Counter)

    def preference(self, submission: Submission) -> tuple[bool, int, str]:
        """Return the key by which clusters are compared; the best cluster has the largest.

        Clusters with room come first. Retries fill one cluster, then the next one, so that they are
        few arrays.
        """
        experiment = submission.request.experiment
        limit = self.options.limit_of(experiment.key)
        room = min(
            self.options.most_in_flight - self.jobs.total(), limit - self.jobs[experiment.pk]
        )
        still_free = min(
            self.options.most_in_flight - self.jobs.total() - self.chosen.total(),
            limit - self.jobs[experiment.pk] - self.chosen[experiment.pk],
        )
        return still_free > 0, room, self.cluster.name


class OtherClusters:
    """The clusters to which retries of jobs can go, read for many jobs at once. Few queries.

    A request may use the clusters that start requests of its experiment automatically. Not used are
    those to which submission is switched off, whose service is down, or for whose service, or for
    all services, an announcement says not to submit.
    """

    def __init__(self, submissions: Iterable[Submission], at: datetime) -> None:
        self._outlook = read_outlook(at)
        self._tried_clusters = _clusters_of_attempts(submissions)
        jobs = _jobs_by_cluster()
        self._targets: list[_Target] = []
        for cluster in Cluster.objects.filter(submits=True).select_related("site"):
            # A cluster whose options are wrong takes no jobs at all.
            with suppress(SchedulerError):
                adapter_that_submits(cluster)
                options = options_of(cluster)
                self._targets.append(_Target(cluster, options, jobs.get(cluster.pk, Counter())))

    def choose(self, submission: Submission, *, other_site_id: int | None = None) -> Cluster | None:
        """Return the cluster for the retry of a job, and count the job there; None if none may.

        No attempt of the job has failed on it. Those with room come first. With `other_site_id`,
        the cluster is at another known site than this one.
        """
        targets = []
        for target in self._targets:
            site_id = target.cluster.site_id
            is_elsewhere = other_site_id is None or site_id not in (None, other_site_id)
            if is_elsewhere and self._may_use(target, submission):
                targets.append(target)
        if not targets:
            return None
        best = max(targets, key=lambda target: target.preference(submission))
        best.chosen[submission.request.experiment_id] += 1
        return best.cluster

    def _may_use(self, target: _Target, submission: Submission) -> bool:
        cluster = target.cluster
        options = target.options
        experiment = submission.request.experiment
        is_open = not options.experiments or experiment.key in options.experiments
        service_pks = [] if cluster.service_id is None else [cluster.service_id]
        return (
            cluster.pk not in self._tried_clusters.get(submission.pk, {submission.cluster_id})
            and options.automatic
            and is_open
            and _is_large_enough(cluster, submission.asked)
            and self._outlook.find_obstacle(experiment.pk, service_pks) is None
        )


def _is_large_enough(cluster: Cluster, resources: Mapping[str, int]) -> bool:
    """Whether jobs that request these resources are within the limits of a cluster."""
    most_memory = cluster.max_memory_bytes
    longest = cluster.max_wall_seconds
    has_memory = not most_memory or resources.get("memory_bytes", 0) <= most_memory
    has_time = not longest or resources.get("time_limit_seconds", 0) <= longest
    return has_memory and has_time


def _jobs_by_cluster() -> dict[int, Counter[int]]:
    """Return how many jobs are planned or in the scheduler, by cluster and experiment."""
    states = [SubmissionState.PLANNED, *IN_SCHEDULER]
    unfinished = Submission.objects.filter(state__in=states, settled_at=None).order_by()
    sums = unfinished.values_list("cluster", "request__experiment").annotate(
        unfinished=Sum(F("tasks") - F("ended"))
    )
    jobs: dict[int, Counter[int]] = {}
    for cluster_id, experiment_id, count in sums:
        jobs.setdefault(cluster_id, Counter())[experiment_id] = count
    return jobs


def _clusters_of_attempts(submissions: Iterable[Submission]) -> dict[int, Collection[int]]:
    """Return by array the clusters of its jobs and of those that it retries, as primary keys."""
    arrays = list(submissions)
    request_pks = {submission.request_id for submission in arrays}
    is_attempt = Q(retry_of__isnull=False) | Q(retries__isnull=False)
    attempts = Submission.objects.filter(is_attempt, request__in=request_pks).order_by()
    retried_pk_of: dict[int, int | None] = {}
    cluster_pk_of: dict[int, int] = {}
    for pk, retried_pk, cluster_pk in attempts.values_list("pk", "retry_of", "cluster").distinct():
        retried_pk_of[pk] = retried_pk
        cluster_pk_of[pk] = cluster_pk

    tried_clusters: dict[int, Collection[int]] = {}
    for array in arrays:
        cluster_pks = {array.cluster_id}
        attempt_pk = array.retry_of_id
        while attempt_pk is not None:
            cluster_pks.add(cluster_pk_of[attempt_pk])
            attempt_pk = retried_pk_of[attempt_pk]
        tried_clusters[array.pk] = cluster_pks
    return tried_clusters
