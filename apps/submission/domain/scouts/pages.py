"""The scouts of a request, as its page shows them."""

from dataclasses import dataclass

from django.db.models import Q

from apps.production.models import Request, Stage
from apps.submission.enums import ScoutState
from apps.submission.models import StageScouts


@dataclass(frozen=True)
class ShownScouts:
    """The scouts of a stage: its other jobs wait, were stopped, or got other resources."""

    scouts: StageScouts
    stage: Stage

    @property
    def is_stopped(self) -> bool:
        return self.scouts.state == ScoutState.BROKEN

    @property
    def has_set_resources(self) -> bool:
        return self.scouts.state == ScoutState.SOUND

    @property
    def waiting_jobs(self) -> int:
        return max(0, (self.stage.jobs or 0) - self.scouts.allowed)


def shown_scouts(request: Request) -> list[ShownScouts]:
    """Return the scouts of a request that keep jobs from starting or set their resources.

    They are in the order of the stages.
    """
    stages = {stage.position: stage for stage in request.stages.all()}
    is_as_asked = Q(memory_bytes=None, wall_seconds=None)
    noteworthy = request.scouts.exclude(is_as_asked, state=ScoutState.SOUND)
    noteworthy = noteworthy.select_related("group", "hold")
    shown = []
    for scouts in noteworthy.order_by("position"):
        is_over = scouts.hold is None or scouts.hold.lifted_at is not None
        if scouts.position not in stages or (scouts.state == ScoutState.BROKEN and is_over):
            continue
        shown.append(ShownScouts(scouts, stages[scouts.position]))
    return shown
