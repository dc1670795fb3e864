"""Reading requests: what one holds, the queue and its ranks, and what waits for whom."""

from dataclasses import dataclass
from datetime import datetime

from apps.production.models import Request
from apps.statusboard.domain.board import Row, board


@dataclass(frozen=True)
class Need:
    """A service that a request needs, its state now, and which of the stages need it."""

    row: Row
    stages: tuple[str, ...]


def needs_of(request: Request, at: datetime) -> list[Need]:
    """Return the services that a request's stages need, with their states now."""
    users: dict[int, list[str]] = {}
    for stage in request.stages.all():
        for service in stage.services.all():
            users.setdefault(service.pk, []).append(stage.name or str(stage.position + 1))
    if not users:
        return []
    return [Need(row, tuple(users[row.service.pk])) for row in board(at, days=0) if row.service.pk in users]
