"""Batches of retries by rules that wait for a service or an announcement."""

from dataclasses import dataclass
from datetime import datetime

from apps.accounts.models import User
from apps.production.domain.outlook import Obstacle
from apps.recovery.models import Decision
from apps.submission.domain.retries.batches import visible_batches
from apps.submission.domain.retries.obstacles import obstacles_by_batch
from apps.submission.enums import BatchState

#: The newest batches of rules of which the page says what they wait for.
MOST_BATCHES = 25


@dataclass(frozen=True)
class WaitingBatches:
    """How many batches of retries by rules wait, and what they wait for, the newest first."""

    batches: int
    obstacles: list[Obstacle]


def find_waiting_batches(user: User, at: datetime) -> WaitingBatches:
    """Return which of the newest batches of rules wait for a service or an announcement."""
    of_rules = Decision.objects.filter(batch__isnull=False).values("batch")
    releasing = visible_batches(user).filter(state=BatchState.RELEASING, pk__in=of_rules)
    newest = list(releasing.order_by("-pk")[:MOST_BATCHES])
    waits = obstacles_by_batch(newest, user, at)
    obstacles: dict[Obstacle, None] = {}
    for batch_obstacles in waits.values():
        obstacles.update(dict.fromkeys(batch_obstacles))
    return WaitingBatches(len(waits), list(obstacles))
