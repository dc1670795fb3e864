"""What retries wait for: services that are down, and announcements that advise against submitting."""

from collections.abc import Sequence

from apps.production.domain.outlook import Obstacle, Outlook
from apps.production.models import Stage
from apps.submission.domain.retrying.eligibility import Candidate
from apps.submission.domain.retrying.owned import obstacles_as_owner


def find_obstacles(candidates: Sequence[Candidate], now: Outlook) -> dict[int, Obstacle]:
    """Return what retries wait for, by primary key of the job, without those that can be submitted. Few queries.

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
    stages = Stage.objects.filter(request__in=requests).select_related("request").prefetch_related("services")
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
