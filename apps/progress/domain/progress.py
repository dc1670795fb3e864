"""Progress of a request, stage by stage, from roll-ups and the last reading of the queues; each with its moment."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from apps.jobs.domain.jobs import totals_as_of
from apps.jobs.domain.queue import Waiting, queue_known, waiting_of
from apps.production.domain.outputs.acceptance import acceptances_of
from apps.production.domain.outputs.counts import OutputCounts, counts_of, is_located, must_be_located
from apps.production.enums import RequestState
from apps.production.models import Request, StageAcceptance
from apps.progress.domain.expected_end import Expected, expected_ends, is_done
from apps.progress.domain.stage_counts import StageProgress, progress_of
from apps.submission.domain.submissions import sent_here


@dataclass(frozen=True)
class Burn:
    """Core-hours used, and asked for at one core a job; None where the request does not say."""

    used: float
    asked: float | None

    @property
    def percent(self) -> float | None:
        return 100 * self.used / self.asked if self.asked else None


@dataclass(frozen=True)
class StageNow:
    """All that is known of one stage; `waiting` is None where no cluster could be asked."""

    row: StageProgress
    waiting: Waiting | None
    counted: OutputCounts
    expected: Expected
    burn: Burn
    located: bool | None
    acceptance: StageAcceptance | None = None

    @property
    def events_missing(self) -> int | None:
        """Return how many events one taken as it is lacks: of those asked for, less those written, or by jobs."""
        asked, taken = self.row.asked.events if self.row.asked else None, self.acceptance
        if taken is None or not asked or not taken.jobs_asked:
            return None
        written = self.counted.events_out
        return max(0, asked - written) if written is not None else round(asked * taken.jobs_missing / taken.jobs_asked)


@dataclass(frozen=True)
class RequestNow:
    """Progress of a request: stages, as of when the ended jobs and the queues are known, and who was not asked.

    `short`: it runs, and has jobs that ended without having completed; `by_portal`: it is short, and the portal sends.
    """

    stages: list[StageNow]
    as_of: datetime | None
    queue_as_of: datetime | None
    queue_unknown: list[str]
    short: bool = False
    by_portal: bool = False

    @property
    def expected(self) -> Expected:
        """Return when the last asked stage is expected to end; where that of one is not known, which, and why not."""
        open_ones = [one for one in self.stages if one.row.asked and not is_done(one.row, one.acceptance)]
        for one in open_ones:
            if one.expected.at is None:
                return Expected(None, f"{one.row.stage}: {one.expected.basis}")
        return Expected(
            max((one.expected.at for one in open_ones if one.expected.at), default=None),
            "",
            max((one.expected.early for one in open_ones if one.expected.early), default=None),
            max((one.expected.late for one in open_ones if one.expected.late), default=None),
        )


def progress_now(request: Request, *, at: datetime) -> RequestNow:
    """Return the progress of a request, in a fixed number of queries."""
    as_of = totals_as_of()
    rows, counted = progress_of(request), counts_of(request)
    queue_as_of, unknown = queue_known()
    waiting = waiting_of(request)
    accepted = acceptances_of([request])
    stages = []
    for row, expected in zip(rows, expected_ends(request, rows, accepted, at=as_of or at), strict=True):
        mine = waiting.get(row.stage.casefold(), Waiting()) if queue_as_of else None
        known = counted.get(row.asked.pk, OutputCounts()) if row.asked else OutputCounts()
        located = is_located(row.asked) if row.asked and must_be_located(row.asked) else None
        taken = accepted.get(row.asked.pk) if row.asked else None
        stages.append(StageNow(row, mine, known, expected, _burn(row), located, taken))
    short = _is_short(request, stages)
    by_portal = short and bool(sent_here([request.pk]))
    return RequestNow(stages, as_of, queue_as_of, unknown, short, by_portal)


def _is_short(request: Request, stages: Iterable[StageNow]) -> bool:
    return request.state == RequestState.RUNNING and any(
        stage.row.ended > stage.row.completed and not is_done(stage.row, stage.acceptance)
        for stage in stages
        if stage.row.wanted is not None
    )


def _burn(row: StageProgress) -> Burn:
    stage = row.asked
    asked = stage.jobs * stage.wall_seconds / 3600 if stage and stage.jobs and stage.wall_seconds else None
    return Burn(row.sums.core_seconds / 3600, asked)


def total_burn(stages: Iterable[StageNow]) -> Burn:
    """Return the burn of all stages together; what was asked is known only if it is of each."""
    asked = [stage.burn.asked for stage in stages if stage.row.asked]
    known = [one for one in asked if one is not None]
    return Burn(sum(stage.burn.used for stage in stages), sum(known) if known and len(known) == len(asked) else None)
