"""The services that a request requires, with their current states."""

from dataclasses import dataclass
from datetime import datetime

from apps.production.models import Request
from apps.statusboard.domain.board import Row, board


@dataclass(frozen=True)
class RequiredService:
    """A service that a request requires, its current state, and the stages that require it."""

    row: Row
    stages: tuple[str, ...]


def required_services(request: Request, at: datetime) -> list[RequiredService]:
    """Return the services that a request's stages require, with their current states."""
    users: dict[int, list[str]] = {}
    for stage in request.stages.all():
        for service in stage.services.all():
            users.setdefault(service.pk, []).append(stage.name or str(stage.position + 1))
    if not users:
        return []
    return [RequiredService(row, tuple(users[row.service.pk])) for row in board(at, days=0) if row.service.pk in users]
