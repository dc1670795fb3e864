"""Continuing without failed jobs: what a stage lacks, what prevents its acceptance, and the decision."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from apps.accounts.models import User
from apps.core.domain.background import enqueue
from apps.core.errors import InvalidTransition
from apps.jobs.domain.queue import Waiting, waiting_of
from apps.jobs.domain.totals import Sums, stage_sums
from apps.jobs.domain.undelivered import LeftOut, left_out
from apps.production.domain.outputs.acceptance import record_acceptance
from apps.production.enums import RequestState
from apps.production.models import Request, Stage, StageAcceptance
from apps.submission.domain.keepup import is_over, takes_files
from apps.submission.domain.plan import locked
from apps.submission.domain.submissions import StageStanding, standings_of
from apps.submission.enums import SubmissionState
from apps.submission.models import Assignment

_ON_ITS_WAY = {SubmissionState.PLANNED, SubmissionState.SENDING, SubmissionState.UNKNOWN}


@dataclass(frozen=True)
class Shortfall:
    """Requested and completed jobs of a stage; `obstacle` says why it cannot be accepted as is, or is empty."""

    stage: Stage
    asked: int
    completed: int
    obstacle: str
    acceptance: StageAcceptance | None = None

    @property
    def missing(self) -> int:
        return max(0, self.asked - self.completed)

    @property
    def events_missing(self) -> int | None:
        """Return the missing events by the share of missing jobs; None if unknown."""
        events = self.stage.events
        return round(events * self.missing / self.asked) if events and self.asked else None


def shortfalls_of(request: Request, at: datetime) -> list[Shortfall]:
    """Return the shortfall of each stage, in a fixed number of queries."""
    standings = standings_of(request)
    if not any(standing.submissions for standing in standings):
        return _of_jobs(request, standings)
    found: list[Shortfall] = []
    by_file, before, complete = takes_files(request), 0, True
    if by_file:
        before = request.taken_files.values("job").distinct().count()
    for standing in standings:
        stage, completed = standing.stage, standing.completed
        asked = before if by_file else stage.jobs or 0
        obstacle = ""
        if not complete:
            obstacle = "the previous stage still waits for jobs."
        elif by_file and not is_over(request, at):
            obstacle = f"new files are processed until {request.arguments['stop_on']}."
        elif planned := sum(one.tasks for one in standing.submissions if one.state in _ON_ITS_WAY):
            obstacle = f"{planned:,} jobs are being submitted."
        obstacle = obstacle or _obstacle(standing.running, asked, completed)
        found.append(Shortfall(stage, asked, completed, obstacle, standing.acceptance))
        complete = complete and (completed >= asked > 0 or standing.acceptance is not None)
        before = completed
    return found


@transaction.atomic
def accept_stage(*, request: Request, position: int, by: User, at: datetime, reason: str) -> StageAcceptance:
    """Accept a stage as is: the next stage starts, or the request is completing.

    Raises `NotAllowed`, `InvalidFields` for a missing reason, `InvalidTransition` with the obstacle.
    """
    request = locked(request)
    one = next((one for one in shortfalls_of(request, at) if one.stage.position == position), None)
    if one is None:
        raise InvalidTransition(f"{request} has no such stage.")
    one.stage.request = request
    if one.obstacle and one.acceptance is None and request.state == RequestState.RUNNING:
        raise InvalidTransition(f"{request}: {one.stage.name} cannot be accepted as is: {one.obstacle}")
    row = record_acceptance(stage=one.stage, asked=one.asked, completed=one.completed, by=by, at=at, reason=reason)
    for cluster_id in Assignment.objects.filter(request=request).values_list("cluster_id", flat=True):
        enqueue("submission.send_to", cluster_id=cluster_id)
    return row


def _of_jobs(request: Request, standings: Sequence[StageStanding]) -> list[Shortfall]:
    """Return the shortfalls of stages whose jobs were submitted by hand, from totals and queues."""
    waiting, sums, without = waiting_of(request), stage_sums([request])[request.pk], left_out([request])
    found = []
    for standing in standings:
        stage = standing.stage
        name, asked = stage.name.casefold(), stage.jobs or 0
        completed = sums.get(name, Sums()).completed - without.get((request.key, name), LeftOut()).completed
        unfinished = waiting.get(name, Waiting())
        in_queue = unfinished.at_most(asked - completed).all if asked else unfinished.all
        obstacle = _obstacle(in_queue, asked, max(0, completed))
        found.append(Shortfall(stage, asked, max(0, completed), obstacle, standing.acceptance))
    return found


def _obstacle(in_queue: int, asked: int, completed: int) -> str:
    if in_queue:
        return f"{in_queue:,} jobs are queued or running. Wait for them or cancel them first."
    if not asked:
        return "the request gives no number of jobs."
    if not completed:
        return "none of its jobs has completed."
    return "" if completed < asked else "all of its jobs have completed."
