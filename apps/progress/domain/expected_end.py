"""When the stages of a request are expected to end: by their pace, or by past jobs once the stage before has ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Min, Sum

from apps.clusters.schedulers.base import JobState
from apps.core.domain.events import events_of
from apps.jobs.domain.records import hour_of
from apps.jobs.models import HourlyTotals
from apps.production.domain.estimates.figures import StageEstimate
from apps.production.domain.estimates.past import past_of_stages
from apps.production.domain.holds import ActiveHold, stage_holds
from apps.production.enums import RequestState
from apps.production.models import Request, StageAcceptance
from apps.progress.domain.stage_counts import StageProgress

#: Throughput is that of so many hours.
WINDOW = timedelta(hours=24)
#: Beyond some years a figure says nothing, and dates end.
_FAR = timedelta(days=3650)
_EXPECTS = {RequestState.QUEUED, RequestState.TESTING, RequestState.RUNNING}


@dataclass(frozen=True)
class Expected:
    """When a stage is expected to end, and what that rests on; without a moment, why there is none.

    It may end between `early` and `late`; by its pace alone, no interval is known, and they are `at` too.
    """

    at: datetime | None
    basis: str
    early: datetime | None = None
    late: datetime | None = None

    @property
    def is_wide(self) -> bool:
        return self.early != self.late


@dataclass(frozen=True)
class _Known:
    """What the ends of the stages of one request are worked out from."""

    at: datetime
    state: RequestState
    pace: Mapping[str, tuple[int, datetime]]
    past: Mapping[int, StageEstimate]
    held: Mapping[int, ActiveHold]
    started_at: datetime | None


def is_done(row: StageProgress, taken: StageAcceptance | None = None) -> bool:
    """Tell whether nothing more is waited for of a stage: all asked jobs have completed, or it is taken as it is."""
    return taken is not None or (row.wanted is not None and row.completed >= row.wanted)


def expected_ends(
    request: Request, rows: Sequence[StageProgress], accepted: Mapping[int, StageAcceptance], *, at: datetime
) -> list[Expected]:
    """Return the expected end of each stage, in their order, in a fixed number of queries.

    In a running request a stage without a pace yet begins when the one before ends, and takes what past jobs took;
    `early` and `late` add up along the chain.
    """
    known = _known(request, [row for row in rows if row.asked], at)
    ends: list[Expected] = []
    before: tuple[StageProgress, Expected] | None = None
    for row in rows:
        taken = accepted.get(row.asked.pk) if row.asked else None
        end = Expected(None, "taken as it is") if taken else _expected(row, before, accepted, known)
        ends.append(end)
        if row.asked:
            before = row, end
    return ends


def _known(request: Request, rows: Sequence[StageProgress], at: datetime) -> _Known:
    """Read what is needed; past jobs and holds only of a running request, whose stages they may concern."""
    state, stages = RequestState(request.state), [row.asked for row in rows if row.asked]
    if state != RequestState.RUNNING:
        return _Known(at, state, _pace(request, at), {}, {}, None)
    return _Known(
        at,
        state,
        _pace(request, at),
        past_of_stages(stages, request.experiment_id),
        stage_holds(request, stages),
        events_of(request).filter(new=RequestState.RUNNING).values_list("at", flat=True).last(),
    )


def _pace(request: Request, at: datetime) -> dict[str, tuple[int, datetime]]:
    """Return how many jobs of each stage were completed in the window, and from when on."""
    rows = (
        HourlyTotals.objects.filter(
            request_key=request.key,
            experiment=request.experiment_id,
            state=JobState.COMPLETED,
            hour__gte=hour_of(at - WINDOW),
        )
        .order_by()
        .values("stage")
        .annotate(done=Sum("jobs"), first=Min("hour"))
    )
    found: dict[str, tuple[int, datetime]] = {}
    for row in rows:
        done, first = found.get(row["stage"].casefold(), (0, row["first"]))
        found[row["stage"].casefold()] = (done + row["done"], min(first, row["first"]))
    return found


def _expected(
    row: StageProgress,
    before: tuple[StageProgress, Expected] | None,
    accepted: Mapping[int, StageAcceptance],
    known: _Known,
) -> Expected:
    if why := _why_not(row, known):
        return Expected(None, why)
    pace, wanted = known.pace.get(row.stage.casefold()), row.wanted or 0
    if pace is not None and pace[1] < known.at:
        return _by_pace(wanted - row.completed, pace, known.at)
    if row.completed or row.asked is None or known.state != RequestState.RUNNING:
        return Expected(None, f"no job was completed in the last {WINDOW.total_seconds() / 3600:.0f} hours")
    if held := known.held.get(row.asked.pk):
        return Expected(None, f"{held.what} is held")
    return _by_past(known.past[row.asked.pk], _begin(before, accepted, known), known.at)


def _why_not(row: StageProgress, known: _Known) -> str:
    if row.wanted is None:
        return "the request does not say how many jobs it takes"
    if is_done(row):
        return "all its jobs are done"
    return "" if known.state in _EXPECTS else f"the request is “{known.state.label}”"


def _by_pace(left: int, pace: tuple[int, datetime], at: datetime) -> Expected:
    done, since = pace
    seconds = (at - since).total_seconds()
    if left * seconds / done > _FAR.total_seconds():
        return Expected(None, "at its present pace not within ten years")
    basis = f"{done:,} job{'s' if done != 1 else ''} in {max(1, round(seconds / 3600))} h, {left:,} to go"
    end = at + timedelta(seconds=left * seconds / done)
    return Expected(end, basis, end, end)


def _begin(
    before: tuple[StageProgress, Expected] | None, accepted: Mapping[int, StageAcceptance], known: _Known
) -> Expected:
    """Return when a stage of which no job has completed yet may begin, or could; `basis` says after what."""
    if before is None:
        since, words = known.started_at or known.at, "from the start"
    else:
        row, end = before
        words = f"after {row.stage}"
        taken = accepted.get(row.asked.pk) if row.asked else None
        if not is_done(row, taken):
            told = words if end.at else f"waits for {row.stage}, whose end is not known"
            return Expected(end.at, told, end.early, end.late)
        since = taken.at if taken else row.sums.last_ended_at or known.at
    return Expected(since, words, since, since)


def _by_past(past: StageEstimate, begin: Expected, at: datetime) -> Expected:
    """Add what past jobs of the stage took to when it begins; what that puts into the past is not repeated as true."""
    if not past.past_jobs or past.days is None:
        return Expected(None, "no past jobs of this stage")
    if begin.at is None or begin.early is None or begin.late is None:
        return begin
    basis = f"{begin.basis}, by {past.past_jobs:,} past job{'s' if past.past_jobs != 1 else ''}: {past.alike}"
    if begin.late - at + timedelta(days=min(past.days.high, 2 * _FAR.days)) > _FAR:
        return Expected(None, "by its past jobs not within ten years")
    early, likely, late = (
        moment + timedelta(days=days)
        for moment, days in (
            (begin.early, past.days.low),
            (begin.at, past.days.mid),
            (begin.late, past.days.high),
        )
    )
    if late < at:
        return Expected(None, f"no job has completed, though by {past.past_jobs:,} past jobs all would have by now")
    return Expected(max(likely, at), basis, max(early, at), late)
