"""What the completed jobs of a stage used, beside what a job requested."""

import math
from dataclasses import dataclass

from apps.core.domain.quantities import format_size, round_duration, round_size
from apps.jobs.models import Job
from apps.production.models import StageHistory

#: With fewer completed jobs there is no advice.
ENOUGH_JOBS = 20
#: What is left above the use of 99 % of the jobs, as a share of it.
_SPARE_MEMORY = 1.2
_SPARE_TIME = 1.3
#: There is advice if what would do is less than this share of what was requested.
_MUCH_LESS = 0.7
#: Advised memory is a multiple of this; below it, nothing is gained.
_STEP_BYTES = 100 * 10**6
_STEP_SECONDS = 600
#: The scheduler cannot give less than a core.
_STEP_CORES = 1


@dataclass(frozen=True, slots=True)
class StageUse:
    """What 99 % of the completed jobs of a stage used at most; None if unknown.

    `cpu_share` is their CPU time as a share of their core-seconds.
    """

    jobs: int
    memory_bytes: float | None
    wall_seconds: float | None
    cpu_share: float | None

    @property
    def is_enough(self) -> bool:
        """Return whether there are enough jobs for advice."""
        return self.jobs >= ENOUGH_JOBS


@dataclass(frozen=True, slots=True)
class ResourceAdvice:
    """What to request instead, and why."""

    request: str
    reason: str


def stage_use(job: Job) -> StageUse | None:
    """Return what the completed jobs of a job's request and stage used; None without any."""
    if job.request_id is None or not job.stage:
        return None
    history = StageHistory.objects.filter(
        request=job.request_id, name=job.stage.lower(), completed__gt=0
    ).first()
    if history is None:
        return None
    cpu_share = None
    if history.completed_cpu_seconds is not None and history.completed_core_seconds:
        cpu_share = history.completed_cpu_seconds / history.completed_core_seconds
    return StageUse(
        jobs=history.completed,
        memory_bytes=history.memory_bytes_99,
        wall_seconds=history.wall_seconds_99,
        cpu_share=cpu_share,
    )


def advise(job: Job, use: StageUse | None) -> list[ResourceAdvice]:
    """Return what a job could have requested less of."""
    if use is None or not use.is_enough:
        return []
    advice = []
    if memory := _less(job.requested_memory_bytes, use.memory_bytes, _SPARE_MEMORY, _STEP_BYTES):
        advice.append(
            ResourceAdvice(
                f"{format_size(memory)} of memory instead of"
                f" {round_size(job.requested_memory_bytes or 0)}",
                f"99 % of {use.jobs:,} completed jobs used at most"
                f" {round_size(use.memory_bytes or 0)}",
            )
        )
    if time := _less(job.time_limit_seconds, use.wall_seconds, _SPARE_TIME, _STEP_SECONDS):
        advice.append(
            ResourceAdvice(
                f"{round_duration(time)} of wall time instead of"
                f" {round_duration(job.time_limit_seconds or 0)}",
                f"99 % of {use.jobs:,} completed jobs took at most"
                f" {round_duration(use.wall_seconds or 0)}, and a shorter job can start sooner",
            )
        )
    used_cores = None if use.cpu_share is None else use.cpu_share * job.cpus
    if cores := _less(job.cpus, used_cores, 1, _STEP_CORES):
        advice.append(
            ResourceAdvice(
                f"{cores} {'core' if cores == 1 else 'cores'} instead of {job.cpus}",
                f"{use.jobs:,} completed jobs used {used_cores:.1f} cores on average",
            )
        )
    return advice


def _less(requested: int | None, used: float | None, spare: float, step: int) -> int | None:
    """Return what would do, a multiple of the step; None if it is not much less, or unknown."""
    if not requested or not used:
        return None
    would_do = max(1, math.ceil(used * spare / step)) * step
    return would_do if would_do < _MUCH_LESS * requested else None
