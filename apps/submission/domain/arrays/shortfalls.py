"""Accept stages without their failed jobs: what is missing, what prevents it, and the decision."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from apps.accounts.models import User
from apps.core.domain.background import enqueue
from apps.core.errors import InvalidTransition
from apps.jobs.domain.collection.outside_production import (
    JobsOutsideProduction,
    count_outside_production,
)
from apps.jobs.domain.live.queue import Waiting, waiting_of
from apps.jobs.domain.totals.totals import stage_sums
from apps.production.domain.outputs.acceptance import record_acceptance
from apps.production.enums import RequestState
from apps.production.models import Request, Stage, StageAcceptance
from apps.submission.domain.arrays.files import merge_sources, takes_files
from apps.submission.domain.arrays.keepup import is_over, jobs_of_files
from apps.submission.domain.arrays.merging import ended_stages
from apps.submission.domain.arrays.plan import lock_request
from apps.submission.domain.arrays.submissions import (
    StageSubmissions,
    count_completed_twice,
    stage_submissions_of,
)
from apps.submission.enums import SubmissionState
from apps.submission.models import Assignment

_ON_ITS_WAY = {SubmissionState.PLANNED, SubmissionState.SENDING, SubmissionState.UNKNOWN}


@dataclass(frozen=True)
class Shortfall:
    """The requested and completed jobs of a stage.

    `obstacle` says why the stage cannot be accepted as it is, or is empty.
    """

    stage: Stage
    requested: int
    completed: int
    obstacle: str
    acceptance: StageAcceptance | None = None
    part_events_missing: int = 0

    @property
    def missing(self) -> int:
        return max(0, self.requested - self.completed)

    @property
    def events_missing(self) -> int | None:
        """Return the missing events by the share of missing jobs; None if unknown.

        Those that completed jobs lack, because they ran with a part of their events, count, too.
        """
        events = self.stage.events
        if not events or not self.requested:
            return None
        return round(events * self.missing / self.requested) + self.part_events_missing


def shortfalls_of(request: Request, at: datetime) -> list[Shortfall]:
    """Return the shortfall of each stage, in a fixed number of queries."""
    by_stage = stage_submissions_of(request)
    if not any(stage_submissions.submissions for stage_submissions in by_stage):
        return _of_jobs(request, by_stage)

    by_file = takes_files(request)
    jobs_before = 0
    if by_file:
        jobs_before = jobs_of_files(request)
    merges = merge_sources(request)
    ended = ended_stages(request, by_stage, at) if merges else set()

    shortfalls: list[Shortfall] = []
    are_previous_complete = True
    for stage_submissions in by_stage:
        stage = stage_submissions.stage
        completed = stage_submissions.completed
        requested = jobs_before if by_file else stage.jobs or 0
        planned = _jobs_being_submitted(stage_submissions)
        if stage.position in merges:
            requested = stage_submissions.first_free
        if not are_previous_complete:
            obstacle = "the previous stage still waits for jobs."
        elif by_file and not is_over(request, at):
            obstacle = f"new files are processed until {request.arguments['stop_on']}."
        elif planned:
            obstacle = f"{planned:,} jobs are being submitted."
        else:
            obstacle = _obstacle(stage_submissions.running, requested, completed)
        shortfalls.append(
            Shortfall(
                stage,
                requested,
                completed,
                obstacle,
                stage_submissions.acceptance,
                stage_submissions.part.events_missing,
            )
        )

        is_complete = completed >= requested > 0 or stage_submissions.acceptance is not None
        if stage.position in merges:
            is_complete = stage.position in ended
        else:
            jobs_before = completed
        are_previous_complete = are_previous_complete and is_complete
    return shortfalls


def _jobs_being_submitted(stage_submissions: StageSubmissions) -> int:
    """Return the number of jobs of a stage that are planned, but not yet in the scheduler."""
    return sum(
        submission.tasks
        for submission in stage_submissions.submissions
        if submission.state in _ON_ITS_WAY
    )


@transaction.atomic
def accept_stage(
    *, request: Request, position: int, by: User, at: datetime, reason: str
) -> StageAcceptance:
    """Accept a stage as is: the next stage starts, or the request is completing.

    Raises `NotAllowed`, `InvalidFields` for a missing reason, `InvalidTransition` with the
    obstacle.
    """
    request = lock_request(request)
    shortfalls = {shortfall.stage.position: shortfall for shortfall in shortfalls_of(request, at)}
    shortfall = shortfalls.get(position)
    if shortfall is None:
        raise InvalidTransition(f"{request} has no such stage.")
    shortfall.stage.request = request
    if (
        shortfall.obstacle
        and shortfall.acceptance is None
        and request.state == RequestState.RUNNING
    ):
        raise InvalidTransition(
            f"{request}: {shortfall.stage.name} cannot be accepted as is: {shortfall.obstacle}"
        )

    acceptance = record_acceptance(
        stage=shortfall.stage,
        requested=shortfall.requested,
        completed=shortfall.completed,
        by=by,
        at=at,
        reason=reason,
    )
    for cluster_id in Assignment.objects.filter(request=request).values_list(
        "cluster_id", flat=True
    ):
        enqueue("submission.send_to", cluster_id=cluster_id)
    return acceptance


def count_other_completed(request: Request, by_stage: Sequence[StageSubmissions]) -> None:
    """Set `other_completed` of each stage, by which its progress is ahead of its submissions.

    While jobs are in flight it is unknown, and 0: accounting may know of their ends earlier than
    the submissions do.
    """
    completed = _completed_jobs(request)
    ahead = {}
    for stage_submissions in by_stage:
        jobs = completed.get(stage_submissions.stage.name.casefold(), 0)
        if jobs > stage_submissions.completed and not stage_submissions.running:
            ahead[request.pk, stage_submissions.stage.position] = jobs
    twice = count_completed_twice(ahead) if ahead else Counter()
    for stage_submissions in by_stage:
        key = request.pk, stage_submissions.stage.position
        if key in ahead:
            others = ahead[key] - twice[key] - stage_submissions.completed
            stage_submissions.other_completed = max(0, others)


def _completed_jobs(request: Request) -> dict[str, int]:
    """Return how many jobs of each stage have completed, by its name without case."""
    outside_production = count_outside_production([request])
    completed = {}
    for name, sums in stage_sums([request])[request.pk].items():
        outside = outside_production.get((request.key, name), JobsOutsideProduction())
        completed[name] = max(0, sums.completed - outside.completed)
    return completed


def _of_jobs(request: Request, by_stage: Sequence[StageSubmissions]) -> list[Shortfall]:
    """Return the shortfalls of stages whose jobs were submitted by hand, from totals and queues."""
    waiting = waiting_of(request)
    completed_jobs = _completed_jobs(request)

    shortfalls = []
    for stage_submissions in by_stage:
        stage = stage_submissions.stage
        name = stage.name.casefold()
        requested = stage.jobs or 0
        completed = completed_jobs.get(name, 0)

        unfinished = waiting.get(name, Waiting())
        if requested:
            unfinished = unfinished.at_most(requested - completed)
        obstacle = _obstacle(unfinished.all, requested, completed)
        shortfalls.append(
            Shortfall(stage, requested, completed, obstacle, stage_submissions.acceptance)
        )
    return shortfalls


def _obstacle(in_queue: int, requested: int, completed: int) -> str:
    if in_queue:
        return f"{in_queue:,} jobs are queued or running. Wait for them or cancel them first."
    if not requested:
        return "the request gives no number of jobs."
    if not completed:
        return "none of its jobs has completed."
    return "" if completed < requested else "all of its jobs have completed."
