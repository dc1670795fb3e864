"""Memory and wall time of the jobs after the scouts of a stage, from what these used."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from django.db.models import Q

from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import JobState
from apps.core.domain.events import publish
from apps.core.domain.quantities import round_duration, round_size
from apps.jobs.domain.collection.proof import SKEW
from apps.jobs.models import Job
from apps.production.enums import PORTAL
from apps.production.models import Stage
from apps.submission.domain.arrays.changed_resources import ResourceChanges
from apps.submission.enums import Purpose, ScoutState
from apps.submission.models import StageScouts, Submission

#: Fewer completed scouts say too little of the other jobs.
FEWEST_SCOUTS = 5
#: No more of the newest scouts are read.
MOST_SCOUTS = 1_000
#: The other jobs get this multiple of the 95th percentile of the scouts.
MEMORY_MARGIN = 1.25
WALL_MARGIN = 1.5
#: They get at least this multiple of what any scout used, and this share of what was requested:
#: the scheduler samples memory, so the peak of a short job can be missed.
_ABOVE_LARGEST = 1.1
_LOWEST_SHARE = 0.1
#: A smaller reduction is not worth a change.
_WORTH_SHARE = 0.9
_MEMORY_UNIT = 2**20
_WALL_UNIT = 60


class _Resources(NamedTuple):
    """Memory and wall time of a job."""

    memory_bytes: int
    wall_seconds: int

    def __str__(self) -> str:
        return f"{round_size(self.memory_bytes)}, {round_duration(self.wall_seconds)}"


@dataclass
class ScoutUse:
    """Peak memory in bytes and wall time in seconds of completed scouts, by job.

    `hit_memory` and `hit_time`: a scout was killed at this limit. `have_all_ended`: no scout runs.
    """

    memory_bytes: list[int] = field(default_factory=list)
    wall_seconds: list[int] = field(default_factory=list)
    hit_memory: bool = False
    hit_time: bool = False
    have_all_ended: bool = False


def percentile_95(values: Sequence[int]) -> int:
    """Return the smallest value that at least 95 % of the values do not exceed."""
    rank = math.ceil(0.95 * len(values))
    return sorted(values)[rank - 1]


def fit_resource(
    used: Sequence[int], *, requested: int, bound: int, margin: float, unit: int, hit_limit: bool
) -> int:
    """Return how much of a resource other jobs get, in the unit of what is `requested`.

    `used` is what each completed scout used. The result is a multiple of `unit`, unless it is
    `bound`, which it never exceeds. It is not below `requested` if a scout hit its limit, and equal
    to it if a change is not worthwhile.
    """
    if len(used) < FEWEST_SCOUTS:
        return requested
    needed = max(
        margin * percentile_95(used), _ABOVE_LARGEST * max(used), _LOWEST_SHARE * requested
    )
    value = min(math.ceil(needed / unit) * unit, bound)
    if value < requested and (hit_limit or value > _WORTH_SHARE * requested):
        return requested
    return value


def fit_memory(use: ScoutUse, *, requested: int, bound: int) -> int:
    """Return the memory of a job after the scouts, in bytes."""
    return fit_resource(
        use.memory_bytes,
        requested=requested,
        bound=bound,
        margin=MEMORY_MARGIN,
        unit=_MEMORY_UNIT,
        hit_limit=use.hit_memory,
    )


def fit_wall_time(use: ScoutUse, *, requested: int, bound: int) -> int:
    """Return the time limit of a job after the scouts, in seconds.

    The shortest scouts end first, so the limit stays as it is until all have ended.
    """
    if not use.have_all_ended:
        return requested
    return fit_resource(
        use.wall_seconds,
        requested=requested,
        bound=bound,
        margin=WALL_MARGIN,
        unit=_WALL_UNIT,
        hit_limit=use.hit_time,
    )


def signed_bound(requested: int, *, signed: int | None, limit_of_cluster: int | None) -> int:
    """Return the most that a job may get: what was signed with the request, within the cluster.

    Without a signed bound, that is what the stage requests. It is never below that, either.
    """
    bound = signed or requested
    if limit_of_cluster:
        bound = min(bound, limit_of_cluster)
    return max(requested, bound)


def resources_after_scouts(stage: Stage, cluster: Cluster, *, at: datetime) -> ResourceChanges:
    """Return memory and wall time of the next jobs of a stage, in the caller's transaction.

    Measures its scouts until all have ended, and keeps what changed in the timeline.
    """
    scouts = StageScouts.objects.filter(
        request=stage.request_id, position=stage.position, state=ScoutState.SOUND
    ).first()
    if scouts is None or not stage.memory_bytes or not stage.wall_seconds:
        return ResourceChanges()
    is_as_requested = (scouts.asked_memory_bytes, scouts.asked_wall_seconds) == (
        stage.memory_bytes,
        stage.wall_seconds,
    )
    if scouts.measured_at is None or not is_as_requested:
        _measure(scouts, stage, cluster, at)
    # They may have been measured on another cluster, whose limits are higher.
    return ResourceChanges(
        memory_bytes=_within(scouts.memory_bytes, cluster.max_memory_bytes),
        time_limit_seconds=_within(scouts.wall_seconds, cluster.max_wall_seconds),
    )


def _within(value: int | None, limit: int | None) -> int:
    """Return a value within the limit of a cluster; 0 for one that is as requested."""
    if value and limit:
        return min(value, limit)
    return value or 0


def _measure(scouts: StageScouts, stage: Stage, cluster: Cluster, at: datetime) -> None:
    """Measure what the scouts used so far, and store and publish what the next jobs get."""
    requested = _Resources(stage.memory_bytes or 0, stage.wall_seconds or 0)
    use = _read_use(scouts)
    memory_bound = signed_bound(
        requested.memory_bytes,
        signed=stage.retry_memory_bytes,
        limit_of_cluster=cluster.max_memory_bytes,
    )
    wall_bound = signed_bound(
        requested.wall_seconds,
        signed=stage.retry_wall_seconds,
        limit_of_cluster=cluster.max_wall_seconds,
    )
    before = _Resources(
        scouts.memory_bytes or requested.memory_bytes,
        scouts.wall_seconds or requested.wall_seconds,
    )
    after = _Resources(
        fit_memory(use, requested=requested.memory_bytes, bound=memory_bound),
        fit_wall_time(use, requested=requested.wall_seconds, bound=wall_bound),
    )
    scouts.asked_memory_bytes = requested.memory_bytes
    scouts.asked_wall_seconds = requested.wall_seconds
    scouts.measured_jobs = len(use.wall_seconds)
    scouts.measured_memory_bytes = percentile_95(use.memory_bytes) if use.memory_bytes else None
    scouts.measured_wall_seconds = percentile_95(use.wall_seconds) if use.wall_seconds else None
    scouts.memory_bytes = None
    if after.memory_bytes != requested.memory_bytes:
        scouts.memory_bytes = after.memory_bytes
    scouts.wall_seconds = None
    if after.wall_seconds != requested.wall_seconds:
        scouts.wall_seconds = after.wall_seconds
    scouts.measured_at = at if use.have_all_ended else None
    scouts.save()
    if after != before:
        _publish(scouts, stage, before, after, at)


def _read_use(stage_scouts: StageScouts) -> ScoutUse:
    """Return what the jobs of a stage used that were planned while its scouts ran."""
    scouts = list(
        Submission.objects.filter(
            request=stage_scouts.request_id,
            position=stage_scouts.position,
            purpose=Purpose.PRODUCTION,
            retry_of=None,
            created_at__lt=stage_scouts.judged_at,
        ).defer("script")
    )
    use = ScoutUse(have_all_ended=all(scout.ended >= scout.tasks for scout in scouts))
    arrays = Q(pk=None)
    times = []
    for scout in scouts:
        if scout.sent_at:
            arrays |= Q(cluster=scout.cluster_id, spool_id=scout.spool_id)
            times.append(scout.sent_at)
    if not times:
        return use

    jobs = Job.objects.filter(arrays, submitted_at__gte=min(times) - SKEW)
    values = jobs.order_by("-ended_at", "-pk").values_list(
        "state", "max_memory_bytes", "wall_seconds"
    )
    for state, memory_bytes, wall_seconds in values[:MOST_SCOUTS]:
        if state == JobState.COMPLETED:
            use.wall_seconds.append(wall_seconds)
            if memory_bytes:
                use.memory_bytes.append(memory_bytes)
        elif state == JobState.OUT_OF_MEMORY:
            use.hit_memory = True
        elif state == JobState.TIMEOUT:
            use.hit_time = True
    return use


def _publish(
    scouts: StageScouts,
    stage: Stage,
    before: _Resources,
    after: _Resources,
    at: datetime,
) -> None:
    reason = f"{scouts.measured_jobs} completed scouts were measured; the 95th percentile is "
    if scouts.measured_memory_bytes is not None:
        reason += f"{round_size(scouts.measured_memory_bytes)} and "
    reason += f"{round_duration(scouts.measured_wall_seconds or 0)}."
    publish(
        kind="submission.resources_set",
        target=stage.request,
        by=PORTAL,
        at=at,
        old=str(before),
        new=str(after),
        reason=reason,
        data={
            "stage": stage.name,
            "position": scouts.position,
            "jobs": scouts.measured_jobs,
            "memory_bytes": after.memory_bytes,
            "wall_seconds": after.wall_seconds,
            "asked_memory_bytes": scouts.asked_memory_bytes,
            "asked_wall_seconds": scouts.asked_wall_seconds,
            "measured_memory_bytes": scouts.measured_memory_bytes,
            "measured_wall_seconds": scouts.measured_wall_seconds,
        },
    )
