"""What the portal knows of past jobs of a stage, for tests."""

from apps.production.models import Request, StageHistory
from tests.factories.requests import AT


def history(request: Request, **changes: object) -> StageHistory:
    """A hundred completed jobs of its generation."""
    row = {
        "name": "generation",
        "release": "v09_72",
        "configuration": "generation.fcl",
        "attempts": 110,
        "completed": 100,
        "core_seconds": 9e5,
        "completed_wall_seconds": 9e5,
        "wall_seconds": [7000.0, 8000.0, 9000.0, 10_000.0, 12_000.0],
        "memory_bytes": [1e9, 1.5e9, 2e9, 2.5e9, 3e9],
        "per_day": [100.0] * 5,
        "last_ended_at": AT,
        "last_completed_at": AT,
    }
    return StageHistory.objects.create(
        request=request, experiment=request.experiment, **{**row, **changes}
    )
