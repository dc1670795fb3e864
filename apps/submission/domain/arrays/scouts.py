"""Which stages have scouts, and how many of their jobs may be planned before these have ended."""

import math
from datetime import datetime

from apps.jobs.domain.statistics.intervals import wilson_interval
from apps.production.models import Request, Stage, StageHistory
from apps.submission.enums import ScoutState
from apps.submission.models import StageScouts

#: The usual failure rate lies in this range, whatever past jobs say.
LOWEST_USUAL, HIGHEST_USUAL = 0.01, 0.5
#: What is assumed of a stage of which fewer jobs are known.
_FEW_JOBS = 20
_UNKNOWN_RATE = 0.2
#: Scouts are at least this share of the jobs of a stage, up to `_MOST_SCOUTS`.
_SHARE = 0.02
_MOST_SCOUTS = 100
#: A smaller stage has none: its first jobs would be most of what can be saved.
_WORTH_SCOUTS = 5
#: Number of earlier stages of the same name from which the usual failure rate is computed.
_EARLIER_STAGES = 20


def scouts_of_stage(jobs: int, scouts: int) -> int:
    """Return how many jobs of a stage run before the others; 0 if all may run at once.

    `scouts` is the cluster's option.
    """
    if not scouts or jobs < _WORTH_SCOUTS * scouts:
        return 0
    return max(scouts, min(math.ceil(_SHARE * jobs), _MOST_SCOUTS))


def jobs_allowed(request: Request, stage: Stage, *, planned: int, scouts: int, at: datetime) -> int:
    """Return how many more jobs of a stage may be planned now, in the caller's transaction.

    Jobs of a stage that started before there were scouts are not limited.
    """
    jobs = stage.jobs or 0
    first = scouts_of_stage(jobs, scouts)
    if not first:
        return jobs
    stage_scouts = StageScouts.objects.filter(request=request, position=stage.position).first()
    if stage_scouts is None and not planned:
        stage_scouts = StageScouts.objects.create(
            request=request,
            position=stage.position,
            allowed=first,
            usual_rate=_usual_rate_of(request, stage),
            started_at=at,
        )
    if stage_scouts is None or stage_scouts.state != ScoutState.SCOUTING:
        return jobs
    return max(0, stage_scouts.allowed - planned)


def usual_rate(*, attempts: int, completed: int) -> float:
    """Return the failure rate to expect after the attempts and completed jobs of earlier stages.

    It is the upper end of the interval of their rate: that few jobs failed before is no reason to
    stop a stage in which some do.
    """
    if attempts < _FEW_JOBS:
        return _UNKNOWN_RATE
    _, highest = wilson_interval(attempts - completed, attempts)
    return min(max(highest, LOWEST_USUAL), HIGHEST_USUAL)


def _usual_rate_of(request: Request, stage: Stage) -> float:
    earlier = (
        StageHistory.objects.filter(experiment=request.experiment_id, name=stage.name.casefold())
        .exclude(request=request)
        .order_by("-last_ended_at")
        .values_list("attempts", "completed")
    )
    all_attempts = 0
    all_completed = 0
    for attempts, completed in earlier[:_EARLIER_STAGES]:
        all_attempts += attempts
        all_completed += completed
    return usual_rate(attempts=all_attempts, completed=all_completed)
