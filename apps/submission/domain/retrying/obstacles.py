"""What retries wait for: services that are down,
and announcements that advise against submitting.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

from apps.accounts.models import User
from apps.diagnosis.models import Verdict
from apps.production.domain.outlook import Obstacle, Outlook, outlook
from apps.production.models import Stage
from apps.submission.domain.retrying.eligibility import Candidate, array_of, arrays_with_ids_of
from apps.submission.domain.retrying.owned import obstacles_as_owner
from apps.submission.enums import BatchState, RetryState
from apps.submission.models import RetryBatch, RetryJob


def find_obstacles(candidates: Sequence[Candidate], now: Outlook) -> dict[int, Obstacle]:
    """Return what retries wait for, by primary key of the job, without those that can be submitted.

    Few queries.

    Every retry waits while the service that made its job fail is down.
    """
    if not (now.advice or now.down):
        return {}
    owned = [candidate.verdict.job for candidate in candidates if candidate.submission is None]
    obstacles = _obstacles_of_arrays(candidates, now) | obstacles_as_owner(owned, now)

    for candidate in candidates:
        verdict = candidate.verdict
        disruption = now.find_down(verdict.service) if verdict.service else None
        if disruption:
            obstacles[verdict.job_id] = Obstacle(disruption=disruption)
    return obstacles


def _obstacles_of_arrays(candidates: Sequence[Candidate], now: Outlook) -> dict[int, Obstacle]:
    """Return why jobs of the portal's arrays should not be submitted now, by primary key."""
    requests = {candidate.submission.request_id for candidate in candidates if candidate.submission}
    stages = (
        Stage.objects.filter(request__in=requests)
        .select_related("request")
        .prefetch_related("services")
    )
    by_place: dict[tuple[int, int], Obstacle] = {}
    for stage in stages:
        obstacle = now.find_obstacle_of_stage(stage)
        if obstacle:
            by_place[stage.request_id, stage.position] = obstacle

    obstacles = {}
    for candidate in candidates:
        if candidate.submission:
            place = candidate.submission.request_id, candidate.submission.position
            if place in by_place:
                obstacles[candidate.verdict.job_id] = by_place[place]
    return obstacles


def obstacles_by_batch(
    batches: Iterable[RetryBatch], user: User, at: datetime
) -> dict[int, list[Obstacle]]:
    """Return what batches wait for, by primary key, the obstacle of most jobs first. Few queries.

    A batch waits while none of its jobs that the user may see and that are not released yet can be
    submitted.
    """
    releasing = [batch for batch in batches if batch.state == BatchState.RELEASING]
    now = outlook(at) if releasing else None
    if now is None or not (now.advice or now.down):
        return {}

    rows = RetryJob.objects.filter(batch__in=releasing, state=RetryState.WAITING)
    batch_of_job = dict(rows.order_by().values_list("job__pk", "batch"))
    verdicts = (
        Verdict.objects.visible_to(user)
        .filter(job__in=list(batch_of_job))
        .select_related("job__cluster")
    )
    arrays = arrays_with_ids_of(verdict.job for verdict in verdicts)
    candidates = [Candidate(verdict, array_of(verdict.job, arrays)) for verdict in verdicts]
    obstacles = find_obstacles(candidates, now)

    # None counts the jobs that can be released.
    by_batch: dict[int, Counter[Obstacle | None]] = defaultdict(Counter)
    for candidate in candidates:
        job = candidate.verdict.job_id
        by_batch[batch_of_job[job]][obstacles.get(job)] += 1
    waits = {}
    for batch, counts in by_batch.items():
        if None not in counts:
            waits[batch] = [obstacle for obstacle, _ in counts.most_common() if obstacle]
    return waits
