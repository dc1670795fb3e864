"""Progress of a request by stage, from the hourly totals and the last reading of the queues."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from django.utils import timezone

from apps.jobs.domain.collection.claims import has_claims
from apps.jobs.domain.live.queue import Waiting, queue_known, waiting_of
from apps.jobs.domain.records.jobs import collections_behind, totals_as_of
from apps.jobs.models import HourlyTotals
from apps.production.domain.forecast import Days, Expected, Forecast, forecast_of
from apps.production.domain.outputs.acceptance import acceptances_of
from apps.production.domain.outputs.counts import counts_of, is_located, must_be_located
from apps.production.enums import RequestState
from apps.production.models import Request, StageAcceptance, StageCounts
from apps.progress.domain.expected_end import expected_ends, is_done, why_no_end
from apps.progress.domain.points import PointProgress, points_of
from apps.progress.domain.stage_counts import StageProgress, progress_of
from apps.submission.domain.arrays.stage_events import events_in_part_of
from apps.submission.domain.arrays.submissions import EventsInPart, requests_run_by_portal
from apps.submission.models import Submission


@dataclass(frozen=True)
class StageNow:
    """The progress of a stage. `waiting` is None if no cluster has responded.

    `counts` are what its jobs reported. `is_located` is None if its output need not be located.
    """

    progress: StageProgress
    waiting: Waiting | None
    counts: StageCounts
    expected: Expected
    is_located: bool | None
    acceptance: StageAcceptance | None = None
    in_part: EventsInPart = field(default_factory=EventsInPart)

    @property
    def surplus(self) -> int:
        """The number of jobs that completed or are in the queue beyond the requested ones."""
        if self.progress.requested_jobs is None:
            return 0
        waiting = self.waiting.all if self.waiting else 0
        return max(0, self.progress.completed + waiting - self.progress.requested_jobs)

    @property
    def failed_now(self) -> int:
        """The number of requested jobs that ended without completing and are not queued again."""
        failed = max(0, self.progress.ended - self.progress.completed)
        waiting = self.waiting.all if self.waiting else 0
        if self.progress.requested_jobs is None:
            return failed
        return max(0, min(failed, self.progress.requested_jobs - self.progress.completed - waiting))

    @property
    def is_short(self) -> bool:
        """Whether jobs of the stage have finished, but fewer completed than it needs."""
        if self.progress.requested_jobs is None:
            return False
        return self.progress.ended > self.progress.completed and not is_done(
            self.progress, self.acceptance
        )

    @property
    def core_hours_used(self) -> float:
        return self.progress.sums.core_seconds / 3600

    @property
    def core_hours_requested(self) -> float | None:
        """The requested core-hours with one core per job; None if they are not stated."""
        stage = self.progress.requested_stage
        if stage and stage.jobs and stage.wall_seconds:
            return stage.jobs * stage.wall_seconds / 3600
        return None

    @property
    def events_missing(self) -> int | None:
        """The number of events that an accepted stage lacks; None for other stages.

        It is the requested events less the written ones, or else the share of the missing jobs and
        what jobs lack that completed with a part of their events.
        """
        requested = self.progress.requested_stage.events if self.progress.requested_stage else None
        acceptance = self.acceptance
        if acceptance is None or not requested or not acceptance.jobs_asked:
            return None
        written = self.counts.events_out
        if written is not None:
            return max(0, requested - written)
        of_missing_jobs = round(requested * acceptance.jobs_missing / acceptance.jobs_asked)
        return of_missing_jobs + self.in_part.events_missing


@dataclass(frozen=True)
class RequestNow:
    """The progress of a request.

    `as_of` is the time of the data on finished jobs, `queue_as_of` that on queued and running ones.

    `is_short`: the request is running, and some of its jobs finished without completing.
    `by_portal`: in addition, the portal submits its jobs. `has_claims`: other jobs name it without
    proof. `queue_unknown`: clusters that have not responded. `points`: the points of a parameter
    scan.
    """

    request: Request
    stages: list[StageNow]
    as_of: datetime | None
    queue_as_of: datetime | None
    queue_unknown: list[str]
    is_short: bool = False
    by_portal: bool = False
    has_claims: bool = False
    points: list[PointProgress] = field(default_factory=list)

    @property
    def requested_jobs(self) -> int:
        """The number of requested jobs, over the stages that state one."""
        return sum(stage.progress.requested_jobs or 0 for stage in self.stages)

    @property
    def completed(self) -> int:
        """The number of requested jobs that have completed. Surplus jobs do not count."""
        return sum(
            min(stage.progress.completed, stage.progress.requested_jobs or 0)
            for stage in self.stages
        )

    @property
    def points_done(self) -> int:
        return sum(point.is_done for point in self.points)

    @property
    def part_done(self) -> float | None:
        """The fraction of the requested jobs that have completed; None if none are requested."""
        return self.completed / self.requested_jobs if self.requested_jobs else None

    @property
    def failed(self) -> int:
        """The failed attempts of the stages that state their number of jobs, also retried ones."""
        return sum(stage.progress.sums.failed for stage in self.with_number)

    @property
    def failed_now(self) -> int:
        """The jobs of these stages that ended without completing and are not queued again."""
        return sum(stage.failed_now for stage in self.with_number)

    @property
    def with_number(self) -> list[StageNow]:
        """The stages of which the request states the number of jobs."""
        return [stage for stage in self.stages if stage.progress.requested_jobs is not None]

    @property
    def without_number(self) -> list[StageNow]:
        """The requested stages of which it does not: their jobs are in no total."""
        stages = []
        for stage in self.stages:
            if stage.progress.requested_stage and stage.progress.requested_jobs is None:
                stages.append(stage)
        return stages

    @property
    def expected(self) -> Expected:
        """When the last stage is expected to end, or which stage prevents an estimate and why."""
        ends = []
        for stage in self.stages:
            if not stage.progress.requested_stage or is_done(stage.progress, stage.acceptance):
                continue
            if stage.expected.at is None:
                return Expected(None, f"{stage.progress.stage}: {stage.expected.basis}")
            ends.append(stage.expected)

        return Expected(
            _latest([end.at for end in ends]),
            "",
            _latest([end.early for end in ends]),
            _latest([end.late for end in ends]),
        )

    @property
    def forecast(self) -> Forecast:
        """The stored forecast, which all pages show.

        A worker computes it after each move of the request.
        """
        return forecast_of(self.request) or Forecast(
            basis="it is being computed", part_done=self.part_done
        )


def _jobs_known_until(request: Request, *, at: datetime) -> datetime | None:
    """Return until when the finished jobs of a request are known; None if never counted.

    That is the time of the totals, unless the accounting of a cluster with its jobs is behind. A
    request without known jobs may have jobs on any cluster.
    """
    as_of = totals_as_of()
    late = list(collections_behind(at))
    if as_of is None or not late:
        return as_of
    totals = HourlyTotals.objects.filter(
        request_key=request.key, experiment=request.experiment_id
    ).order_by()
    arrays = Submission.objects.filter(request=request).order_by()
    cluster_pks = set(totals.values_list("cluster", flat=True).distinct())
    cluster_pks.update(arrays.values_list("cluster", flat=True).distinct())
    read_until = [as_of]
    for collection in late:
        if not cluster_pks or collection.cluster_id in cluster_pks:
            read_until.append(collection.collected_until)
    return min(read_until)


def _latest(moments: Iterable[datetime | None]) -> datetime | None:
    return max((moment for moment in moments if moment), default=None)


def compute_forecast(progress: RequestNow, *, at: datetime) -> Forecast:
    """Return the forecast of a running request, based on its progress."""
    expected = progress.expected
    stages = {stage.progress.stage: stage.expected for stage in progress.stages}
    if expected.at is None or expected.early is None or expected.late is None:
        return Forecast(basis=expected.basis, at=at, stages=stages, part_done=progress.part_done)
    end = Days(
        timezone.localdate(expected.early),
        timezone.localdate(expected.at),
        timezone.localdate(expected.late),
    )
    return Forecast(None, end, expected.basis, at, stages, progress.part_done)


def progress_now(request: Request, *, at: datetime, computed: bool = False) -> RequestNow:
    """Return the progress of a request, in a fixed number of queries.

    Unless `computed`, the ends of its stages are taken from the stored forecast, which all pages
    show.
    """
    as_of = _jobs_known_until(request, at=at)
    rows = progress_of(request)
    queue_as_of, unknown = queue_known()
    facts = _StageFacts(
        counts=counts_of(request),
        waiting=waiting_of(request) if queue_as_of else None,
        acceptances=acceptances_of([request]),
        in_part=events_in_part_of([request]),
    )
    if computed:
        ends = expected_ends(request, rows, facts.acceptances, at=as_of or at, now=at)
    else:
        ends = _stored_ends(request, rows, facts.acceptances)
    stages = [_stage_now(row, end, facts) for row, end in zip(rows, ends, strict=True)]

    is_running = request.state == RequestState.RUNNING
    is_short = is_running and any(stage.is_short for stage in stages)
    by_portal = is_short and bool(requests_run_by_portal([request.pk]))
    return RequestNow(
        request,
        stages,
        as_of,
        queue_as_of,
        unknown,
        is_short,
        by_portal,
        has_claims(request),
        points_of(request),
    )


def _stored_ends(
    request: Request,
    rows: Iterable[StageProgress],
    acceptances: Mapping[int, StageAcceptance],
) -> list[Expected]:
    """Return the ends of stages in the stored forecast, except of those that have ended since."""
    forecast = forecast_of(request)
    ends = []
    for stage_progress in rows:
        end = None
        why = why_no_end(request, stage_progress, stage_progress.find_in(acceptances))
        if forecast and not why:
            end = forecast.stages.get(stage_progress.stage)
        ends.append(end or Expected(None, why or "not computed yet"))
    return ends


@dataclass(frozen=True)
class _StageFacts:
    """What is known of the stages of a request besides their jobs, by primary key of the stage.

    `waiting` is by name of the stage in lower case, and None if no cluster has responded.
    """

    counts: Mapping[int, StageCounts]
    waiting: Mapping[str, Waiting] | None
    acceptances: Mapping[int, StageAcceptance]
    in_part: Mapping[int, EventsInPart]


def _stage_now(stage_progress: StageProgress, end: Expected, facts: _StageFacts) -> StageNow:
    waiting = None
    if facts.waiting is not None:
        waiting = facts.waiting.get(stage_progress.stage.casefold(), Waiting())
        if stage_progress.requested_jobs is not None:
            waiting = waiting.at_most(stage_progress.requested_jobs - stage_progress.completed)

    stage = stage_progress.requested_stage
    return StageNow(
        stage_progress,
        waiting,
        counts=stage_progress.find_in(facts.counts) or StageCounts(),
        expected=end,
        is_located=is_located(stage) if stage and must_be_located(stage) else None,
        acceptance=stage_progress.find_in(facts.acceptances),
        in_part=stage_progress.find_in(facts.in_part) or EventsInPart(),
    )
