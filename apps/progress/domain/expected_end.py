"""The expected end of stages, by their pace or by past jobs of the same kind of stage."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from functools import cached_property
from typing import NamedTuple

from django.db.models import Min, Sum
from django.utils import timezone

from apps.clusters.schedulers.base import JobState
from apps.core.domain.events import events_of
from apps.core.domain.quantities import count_noun
from apps.jobs.domain.records.conversion import hour_of
from apps.jobs.models import HourlyTotals
from apps.production.domain.estimates.figures import (
    ENOUGH,
    MOST_EXTRAPOLATED,
    StageEstimate,
    is_enough,
)
from apps.production.domain.estimates.past import past_of_stages
from apps.production.domain.forecast import NOT_BEFORE, ON_HOLD, Expected
from apps.production.domain.holds import stage_holds
from apps.production.enums import RequestState
from apps.production.models import Request, Stage, StageAcceptance
from apps.progress.domain.stage_counts import StageProgress

#: The pace is measured over the last 24 hours.
WINDOW = timedelta(hours=24)
#: A pace measured over a shorter time is applied to at most `MOST_EXTRAPOLATED` times its jobs:
#: the first jobs of a stage run before the others, and one that just ended shows no pace.
_STEADY = timedelta(hours=12)
#: Longer estimates mean nothing, and dates have a limit.
_FAR = timedelta(days=3650)


def is_done(stage_progress: StageProgress, acceptance: StageAcceptance | None = None) -> bool:
    """Whether a stage needs no more jobs.

    All requested jobs have completed, or it was accepted as it is.
    """
    return bool(why_done(stage_progress, acceptance))


def why_done(stage_progress: StageProgress, acceptance: StageAcceptance | None) -> str:
    """Return why a stage needs no more jobs; empty if it does."""
    if acceptance is not None:
        return "accepted as is"
    if (
        stage_progress.requested_jobs is not None
        and stage_progress.completed >= stage_progress.requested_jobs
    ):
        return "all its jobs are done"
    return ""


def why_no_end(
    request: Request, stage_progress: StageProgress, acceptance: StageAcceptance | None
) -> str:
    """Return why a stage has no expected end, whatever its pace; empty if it has one.

    Only a running request has ends of stages. Before and after, it has one for the whole request at
    most.
    """
    if done := why_done(stage_progress, acceptance):
        return done
    if stage_progress.requested_jobs is None:
        return "the request does not state its number of jobs"
    is_running = request.state == RequestState.RUNNING
    if is_running and stage_progress.ended >= stage_progress.requested_jobs:
        missing = stage_progress.requested_jobs - stage_progress.completed
        verb = "is" if missing == 1 else "are"
        return f"{count_noun(missing, 'job')} failed and {verb} not retried"
    if is_running:
        return ""
    return f"the request is “{RequestState(request.state).label}”"


def expected_ends(
    request: Request,
    stages: Sequence[StageProgress],
    acceptances: Mapping[int, StageAcceptance],
    *,
    at: datetime,
    now: datetime,
) -> list[Expected]:
    """Return the expected end of each stage in order, in a fixed number of queries.

    Its jobs are known until `at`. No end is before `now`.

    In a running request, a stage without a pace starts when the previous stage ends, and takes as
    long as past jobs did. `early` and `late` add up along the chain.
    """
    ends_by_stage = _StageEnds(
        request,
        [
            stage_progress.requested_stage
            for stage_progress in stages
            if stage_progress.requested_stage
        ],
        acceptances,
        at=at,
        now=now,
    )
    ends: list[Expected] = []
    previous: tuple[StageProgress, Expected] | None = None
    for stage_progress in stages:
        end = ends_by_stage.expect(stage_progress, previous)
        if stage_progress.requested_stage:
            if previous is not None:
                end = _not_before(previous[0].stage, previous[1], end)
            previous = stage_progress, end
        ends.append(end)
    if request.stop_date is None:
        return ends
    return [_not_before_stop(request.stop_date, end) for end in ends]


def _not_before_stop(stop_date: date, end: Expected) -> Expected:
    """Return the end of a stage of keep-up processing: new files come until the stop date."""
    stop = timezone.make_aware(datetime.combine(stop_date, time(23, 59)))
    if end.at is None or end.at >= stop:
        return end
    basis = f"new files are processed until {stop_date:%-d %b %Y}"
    return Expected(stop, basis, max(end.early or stop, stop), max(end.late or stop, stop))


def _not_before(input_stage: str, input_end: Expected, end: Expected) -> Expected:
    """Return the end of a stage that reads the output of another: it ends with it, or later."""
    if input_end.at is None or end.at is None or input_end.at <= end.at:
        return end
    return Expected(
        input_end.at,
        f"{NOT_BEFORE}{input_stage}, whose output it reads",
        max(filter(None, (input_end.early, end.early)), default=None),
        max(filter(None, (input_end.late, end.late)), default=None),
    )


class _Pace(NamedTuple):
    """How many jobs of a stage completed since the first of them in the window."""

    completed: int
    since: datetime

    def text(self, jobs_to_go: int, at: datetime) -> str:
        hours = max(1, round((at - self.since).total_seconds() / 3600))
        return f"{count_noun(self.completed, 'job')} in {hours} h, {jobs_to_go:,} to go"


def _why_no_days(past: StageEstimate) -> str:
    """Return why past jobs do not show how long a stage takes."""
    if 0 < past.past_jobs < ENOUGH:
        return f"only {past.jobs_text} of this stage: too few to estimate"
    return "no past jobs of this stage"


class _StageEnds:
    """Expects the ends of the stages of a request. Each basis of an end is read once."""

    def __init__(
        self,
        request: Request,
        stages: list[Stage],
        acceptances: Mapping[int, StageAcceptance],
        *,
        at: datetime,
        now: datetime,
    ) -> None:
        self.request = request
        self.stages = stages
        self.acceptances = acceptances
        self.at = at
        self.now = now
        is_running = request.state == RequestState.RUNNING
        self.past: Mapping[int, StageEstimate] = {}
        if is_running:
            self.past = past_of_stages(stages, request.experiment_id)
        self.holds = stage_holds(request, stages) if is_running else {}

    @cached_property
    def started_at(self) -> datetime:
        moves = (
            events_of(self.request).filter(new=RequestState.RUNNING).values_list("at", flat=True)
        )
        return moves.last() or self.at

    @cached_property
    def paces(self) -> dict[str, _Pace]:
        """The pace of each stage with jobs that completed in the window, by name in lower case."""
        totals = HourlyTotals.objects.filter(
            request_key=self.request.key,
            experiment=self.request.experiment_id,
            state=JobState.COMPLETED,
            hour__gte=hour_of(self.at - WINDOW),
            hour__lt=self.at,
        )
        by_stage = totals.order_by().values_list("stage")
        paces: dict[str, _Pace] = {}
        for name, jobs, since in by_stage.annotate(done=Sum("jobs"), first=Min("hour")):
            # The names of a stage may differ in case.
            known = paces.get(name.casefold(), _Pace(0, since))
            paces[name.casefold()] = _Pace(known.completed + jobs, min(known.since, since))
        return paces

    def expect(
        self, stage_progress: StageProgress, previous: tuple[StageProgress, Expected] | None
    ) -> Expected:
        """Return the expected end of a stage. `previous` is the stage before it with its end."""
        acceptance = stage_progress.find_in(self.acceptances)
        if why := why_no_end(self.request, stage_progress, acceptance):
            return Expected(None, why)
        if hold := stage_progress.find_in(self.holds):
            return Expected(None, f"{hold.what} {ON_HOLD}")
        pace = self.paces.get(stage_progress.stage.casefold())
        if pace is not None and pace.since < self.at:
            return self._end_by_new_pace(stage_progress, previous, pace)
        if stage_progress.completed or stage_progress.requested_stage is None:
            return Expected(
                None, f"no job completed in the last {WINDOW.total_seconds() / 3600:.0f} hours"
            )
        return self._end_by_past_jobs(
            self.past[stage_progress.requested_stage.pk], self._start(previous)
        )

    def _end_by_new_pace(
        self,
        stage_progress: StageProgress,
        previous: tuple[StageProgress, Expected] | None,
        pace: _Pace,
    ) -> Expected:
        """Return the end by the pace, or by past jobs while the pace shows too little."""
        jobs_to_go = (stage_progress.requested_jobs or 0) - stage_progress.completed
        is_steady = self.at - pace.since >= _STEADY
        is_close = jobs_to_go <= pace.completed * MOST_EXTRAPOLATED
        if is_close or (is_steady and is_enough(pace.completed, jobs_to_go)):
            return self._end_by_pace(pace, jobs_to_go)
        stage = stage_progress.requested_stage
        if stage is not None:
            end = self._end_by_past_jobs(self.past[stage.pk], self._start(previous))
            if end.at is not None:
                return end
        return Expected(None, f"{pace.text(jobs_to_go, self.at)}: too few to estimate yet")

    def _end_by_pace(self, pace: _Pace, jobs_to_go: int) -> Expected:
        seconds = jobs_to_go * (self.at - pace.since).total_seconds() / pace.completed
        if seconds > _FAR.total_seconds():
            return Expected(None, "not within ten years at its present pace")
        end = max(self.at + timedelta(seconds=seconds), self.now)
        return Expected(end, pace.text(jobs_to_go, self.at), end, end)

    def _start(self, previous: tuple[StageProgress, Expected] | None) -> Expected:
        """Return when a stage without completed jobs may start or could have started.

        `basis` names what it follows.
        """
        if previous is None:
            return Expected(self.started_at, "from the start", self.started_at, self.started_at)
        stage_progress, end = previous
        acceptance = stage_progress.find_in(self.acceptances)
        if is_done(stage_progress, acceptance):
            if acceptance:
                since = acceptance.at
            else:
                since = stage_progress.sums.last_ended_at or self.at
            return Expected(since, f"after {stage_progress.stage}", since, since)
        if end.at:
            basis = f"after {stage_progress.stage}"
        else:
            basis = f"waits for {stage_progress.stage}, whose end is unknown"
        return Expected(end.at, basis, end.early, end.late)

    def _end_by_past_jobs(self, past: StageEstimate, start: Expected) -> Expected:
        """Add the duration of past jobs to the start. An end in the past is not shown."""
        if past.exceeds_limit:
            return Expected(None, f"nearly all of {past.jobs_text} took longer than its time limit")
        if past.days is None:
            return Expected(None, _why_no_days(past))
        if start.at is None or start.early is None or start.late is None:
            return start
        if start.late - self.at + timedelta(days=min(past.days.high, 2 * _FAR.days)) > _FAR:
            return Expected(None, "not within ten years by its past jobs or time limit")
        early = start.early + timedelta(days=past.days.low)
        likely = start.at + timedelta(days=past.days.mid)
        late = start.late + timedelta(days=past.days.high)
        if late < self.at:
            if past.past_jobs:
                taken = f"{past.past_jobs:,} past jobs would all"
            else:
                taken = "all its jobs should"
            return Expected(None, f"no job completed yet; {taken} have completed by now")
        basis = f"{start.basis}, by {past.days_basis}"
        return Expected(max(likely, self.now), basis, max(early, self.now), max(late, self.now))
