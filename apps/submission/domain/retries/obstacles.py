"""What retries wait for: services that are down, and advice not to submit."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from apps.accounts.models import User
from apps.clusters.models import Cluster
from apps.diagnosis.domain.reading.job_facts import services_needed_by
from apps.diagnosis.models import Verdict
from apps.production.domain.outlook import Obstacle, Outlook, read_outlook
from apps.production.models import Stage
from apps.submission.domain.arrays.changed_resources import ResourceChanges
from apps.submission.domain.retries.eligibility import RetryCandidate, array_of, arrays_with_ids_of
from apps.submission.domain.retries.owned import jobs_ignoring_advice
from apps.submission.enums import IN_BATCH, BatchState, RetryState
from apps.submission.models import RetryBatch, RetryJob


@dataclass(frozen=True, slots=True)
class Needs:
    """What the retry of a job depends on.

    These are the announcements to its experiment or about its services, unless its request ignores
    advice; and the service that made it fail.
    """

    experiment_id: int | None
    service_pks: frozenset[int]
    failed_service: str
    ignores_advice: bool

    def find_obstacle(self, outlook: Outlook) -> Obstacle | None:
        """Return what the retry waits for, or None if it can be submitted.

        Every retry waits while the service that made its job fail is down.
        """
        disruption = outlook.find_down(self.failed_service) if self.failed_service else None
        if disruption:
            return Obstacle(disruption=disruption)
        if self.ignores_advice:
            return None
        return outlook.find_obstacle(self.experiment_id, self.service_pks)


def needs_by_job(
    candidates: Sequence[RetryCandidate], at: datetime, *, moving_jobs: Collection[int] = ()
) -> dict[int, Needs]:
    """Return what retries depend on, by primary key of the job, in a fixed number of queries.

    `moving_jobs` has the primary keys of jobs whose retries run on another cluster: they do not
    wait for the service that stands for the cluster of the failed job.
    """
    owned = [candidate.verdict.job for candidate in candidates if candidate.submission is None]
    ignoring = jobs_ignoring_advice(owned, at)
    services = services_needed_by(owned)
    stages = _stages_of_arrays(candidates)
    moving = [candidate for candidate in candidates if candidate.verdict.job_id in moving_jobs]
    left_services = _services_of_clusters(moving)

    needs = {}
    for candidate in candidates:
        verdict, submission = candidate.verdict, candidate.submission
        if submission is None:
            needs[verdict.job_id] = Needs(
                experiment_id=verdict.job.experiment_id,
                service_pks=frozenset(services[verdict.job_id]),
                failed_service=verdict.service,
                ignores_advice=verdict.job_id in ignoring,
            )
        else:
            ignores_until = submission.request.ignores_advice_until
            place = submission.request_id, submission.position
            needs[verdict.job_id] = Needs(
                experiment_id=submission.request.experiment_id,
                service_pks=stages.get(place, frozenset()),
                failed_service=_failed_service(verdict, left_services),
                ignores_advice=ignores_until is not None and ignores_until > at,
            )
    return needs


def _services_of_clusters(candidates: Sequence[RetryCandidate]) -> dict[int, set[str]]:
    """Return slug and name of the service that stands for the cluster of each job, by its key."""
    if not candidates:
        return {}
    cluster_pks = {candidate.verdict.job.cluster_id for candidate in candidates}
    services = Cluster.objects.filter(pk__in=cluster_pks, service__isnull=False)
    names = {}
    for pk, slug, name in services.values_list("pk", "service__slug", "service__name"):
        names[pk] = {slug.casefold(), name.casefold()}
    services_of_jobs = {}
    for candidate in candidates:
        job = candidate.verdict.job
        services_of_jobs[job.pk] = names.get(job.cluster_id, set())
    return services_of_jobs


def _failed_service(verdict: Verdict, left_services: Mapping[int, set[str]]) -> str:
    """Return the service for which a retry waits; empty if it leaves that service behind."""
    service: str = verdict.service
    if service.casefold() in left_services.get(verdict.job_id, ()):
        return ""
    return service


def _stages_of_arrays(
    candidates: Sequence[RetryCandidate],
) -> dict[tuple[int, int], frozenset[int]]:
    """Return the services that stages need, by request and position. Both are primary keys."""
    arrays = [candidate.submission for candidate in candidates if candidate.submission]
    if not arrays:
        return {}
    request_pks = {array.request_id for array in arrays}
    services: dict[tuple[int, int], set[int]] = defaultdict(set)
    rows = Stage.objects.filter(request__in=request_pks, services__isnull=False)
    for request_pk, position, service_pk in rows.values_list("request", "position", "services"):
        services[request_pk, position].add(service_pk)
    return {place: frozenset(pks) for place, pks in services.items()}


def find_obstacles(
    candidates: Sequence[RetryCandidate], outlook: Outlook, *, moving_jobs: Collection[int] = ()
) -> dict[int, Obstacle]:
    """Return what retries wait for, by primary key of the job, without those that can be submitted.

    `moving_jobs` is as for `needs_by_job`. Few queries.
    """
    if not (outlook.advice or outlook.down):
        return {}
    obstacles = {}
    for job_pk, needs in needs_by_job(candidates, outlook.at, moving_jobs=moving_jobs).items():
        obstacle = needs.find_obstacle(outlook)
        if obstacle:
            obstacles[job_pk] = obstacle
    return obstacles


@dataclass(frozen=True, slots=True)
class BatchedRetry:
    """The retry of a job in a batch, and what it waits for if it is not released yet."""

    batch: RetryBatch
    is_released: bool
    obstacle: Obstacle | None = None


def find_batched_retry(verdict: Verdict, at: datetime) -> BatchedRetry | None:
    """Return the retry of a failed job that waits or runs in a batch; None if no batch has it."""
    retry_jobs = RetryJob.objects.filter(job=verdict.job_id, state__in=IN_BATCH)
    retry = retry_jobs.select_related("batch").first()
    if retry is None:
        return None
    if retry.state == RetryState.RELEASED:
        return BatchedRetry(retry.batch, is_released=True)

    candidate = RetryCandidate(verdict, array_of(verdict.job, arrays_with_ids_of([verdict.job])))
    moving_jobs = [verdict.job_id] if ResourceChanges.read(retry.changes).cluster else []
    obstacles = find_obstacles([candidate], read_outlook(at), moving_jobs=moving_jobs)
    return BatchedRetry(retry.batch, is_released=False, obstacle=obstacles.get(verdict.job_id))


def obstacles_by_batch(
    batches: Iterable[RetryBatch], user: User, at: datetime
) -> dict[int, list[Obstacle]]:
    """Return what batches wait for, by primary key, the obstacle of most jobs first. Few queries.

    A batch waits while none of its jobs that the user may see and that are not released yet can be
    submitted.
    """
    releasing = [batch for batch in batches if batch.state == BatchState.RELEASING]
    outlook = read_outlook(at) if releasing else None
    if outlook is None or not (outlook.advice or outlook.down):
        return {}

    retries = RetryJob.objects.filter(batch__in=releasing, state=RetryState.WAITING)
    batch_of_job = {}
    moving_jobs = set()
    for job_pk, batch_pk, changes in retries.order_by().values_list("job__pk", "batch", "changes"):
        batch_of_job[job_pk] = batch_pk
        if ResourceChanges.read(changes).cluster:
            moving_jobs.add(job_pk)
    verdicts = (
        Verdict.objects.visible_to(user)
        .filter(job__in=list(batch_of_job))
        .select_related("job__cluster")
    )
    arrays = arrays_with_ids_of(verdict.job for verdict in verdicts)
    candidates = [RetryCandidate(verdict, array_of(verdict.job, arrays)) for verdict in verdicts]
    obstacles = find_obstacles(candidates, outlook, moving_jobs=moving_jobs)

    # None counts the jobs that can be released.
    by_batch: dict[int, Counter[Obstacle | None]] = defaultdict(Counter)
    for candidate in candidates:
        job_pk = candidate.verdict.job_id
        by_batch[batch_of_job[job_pk]][obstacles.get(job_pk)] += 1
    waits = {}
    for batch_pk, counts in by_batch.items():
        if None not in counts:
            waits[batch_pk] = [obstacle for obstacle, _ in counts.most_common() if obstacle]
    return waits
