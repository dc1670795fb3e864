"""What waits and runs for requests, as the clusters' queues said last."""

from dataclasses import dataclass
from datetime import datetime

from apps.jobs.models import Collection, QueueCount, QueueReading
from apps.production.models import Request


@dataclass(frozen=True)
class Waiting:
    """Jobs that have not ended."""

    queued: int = 0
    running: int = 0
    held: int = 0

    @property
    def all(self) -> int:
        return self.queued + self.running + self.held


def queue_known() -> tuple[datetime | None, list[str]]:
    """Return the oldest moment of the readings there are, and the clusters that have not said anything."""
    collected = set(Collection.objects.filter(cluster__collects=True).values_list("cluster__name", flat=True))
    answered = QueueReading.objects.filter(cluster__collects=True).values_list("cluster__name", "at")
    read = {name: at for name, at in answered if at is not None}
    return min(read.values(), default=None), sorted(collected - set(read))


def waiting_of(request: Request) -> dict[str, Waiting]:
    """Return the jobs of each stage that have not ended, as the queues said last, by its name in small letters."""
    sums: dict[str, Waiting] = {}
    for row in QueueCount.objects.filter(request=request):
        one = sums.get(row.stage.casefold(), Waiting())
        sums[row.stage.casefold()] = Waiting(one.queued + row.queued, one.running + row.running, one.held + row.held)
    return sums
