"""Submission of a request for its page: automatic start, test results, jobs in the scheduler."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import SchedulerError
from apps.diagnosis.enums import VerdictKind
from apps.production.domain.queue.ranks import rank_of
from apps.production.enums import RequestState
from apps.production.models import Request
from apps.submission.domain.arrays import options_of
from apps.submission.domain.outlook import outlook
from apps.submission.domain.recall import holds_in_queue
from apps.submission.domain.start import may_begin_on, obstacle
from apps.submission.domain.submissions import assignment_of, cancellable, last_tests
from apps.submission.domain.trials import measured, verdict_of
from apps.submission.enums import SubmissionState
from apps.submission.models import Submission


@dataclass(frozen=True)
class Begin:
    """The automatic start of a queued request: clusters, rank, and what prevents it now."""

    clusters: tuple[str, ...]
    rank: int
    obstacle: str


def begin_of(request: Request, at: datetime) -> Begin | None:
    """Return how a queued request starts; None in other states."""
    if request.state != RequestState.QUEUED:
        return None
    chosen = assignment_of(request)
    clusters = [chosen.cluster] if chosen else list(Cluster.objects.filter(submits=True))
    able, now = [], outlook(at)
    for cluster in clusters:
        with suppress(SchedulerError):
            if cluster.submits and may_begin_on(request, options_of(cluster)):
                able.append(cluster)
    obstacles = [obstacle(request, cluster, now) for cluster in able]
    stopped = obstacles[0] if obstacles and all(obstacles) else ""
    return Begin(tuple(cluster.name for cluster in able), rank_of(request) or 0, stopped)


@dataclass(frozen=True)
class Flight:
    """Jobs in schedulers, and whether queued ones can be held there."""

    jobs: int
    clusters: tuple[str, ...]
    can_hold: bool
    held: int

    def __bool__(self) -> bool:
        return bool(self.jobs)


def flight_of(request: Request) -> Flight:
    """Return the jobs of a request in schedulers, without those being cancelled."""
    found = list(request.submissions.filter(cancellable()).select_related("cluster").defer("script"))
    clusters = {submission.cluster for submission in found}
    return Flight(
        jobs=sum(submission.tasks - submission.ended for submission in found),
        clusters=tuple(sorted(cluster.name for cluster in clusters)),
        can_hold=all(holds_in_queue(cluster) for cluster in clusters),
        held=sum(submission.tasks - submission.ended for submission in found if submission.held_at),
    )


@dataclass(frozen=True)
class Result:
    """The last test of a stage in a word and a sentence; `sign` is the state shown."""

    test: Submission
    sign: str
    word: str
    words: str


def results_of(request: Request) -> list[Result]:
    """Return the last test of each stage that has one, in order."""
    return [_result(test) for _, test in sorted(last_tests(request).items())]


def _result(test: Submission) -> Result:
    if test.state != SubmissionState.SENT:
        return Result(test, "unknown", test.get_state_display(), test.last_error)
    if not test.settled_at:
        return Result(test, "running", "running", "")
    if test.completed:
        return Result(test, "completed", "good", measured(test))
    verdict = verdict_of(test)
    if verdict is None:
        return Result(test, "failed", "failed", "Waiting for the verdict." if not test.answered_at else "")
    again = verdict.verdict == VerdictKind.SERVICE and not test.answered_at
    words = f"{verdict.verdict} problem: {verdict.summary}"
    return Result(test, "failed", "failed", f"{words} The test is repeated once the service is up." if again else words)
