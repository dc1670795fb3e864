"""What the portal measured of the clusters, for tests of expected starts."""

from apps.production.models import QueueState


def set_pace(core_hours: float, *, days: int = 10) -> None:
    """Store that clusters did this work on each of some recent days."""
    work = [core_hours * 3600.0] * days
    QueueState.objects.update_or_create(pk=1, defaults={"work_by_day": work})
