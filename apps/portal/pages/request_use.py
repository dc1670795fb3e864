"""Estimated and actual use of a request, and the datasets written by its stages."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from apps.production.domain.estimates.figures import ENOUGH, MEDIAN, Estimate, StageEstimate
from apps.production.domain.outputs.datasets import find_datasets
from apps.production.domain.requests.status import Totals
from apps.production.models import Request, Stage, StageHistory
from apps.progress.domain.progress import RequestNow, StageNow

#: For how many stages the page shows the use per job.
MOST_STAGES = 2
#: The position of the 90th percentile in the quantiles of jobs.
_MOST = -1
#: Use above this fraction of the estimate is marked.
_OVER = 1.1


@dataclass(frozen=True)
class StartEstimate:
    """The core time that a request was expected to take when it was started.

    `by_limit` says that it is the time of all jobs until their limits, for lack of past jobs.
    """

    core_seconds: float
    by_limit: bool

    @property
    def basis(self) -> str:
        return "at the start, with time limits" if self.by_limit else "at the start"


@dataclass(frozen=True)
class Use:
    """A quantity, estimated and actual; None if unknown. `unit` is the filter that formats it.

    `projected` is what it comes to at the end if the jobs to come use what those before did.
    `basis` says what the estimate is based on, `is_most` that it is an upper limit.
    """

    title: str
    unit: str
    estimated: float | None
    actual: float | None
    projected: float | None = None
    basis: str = ""
    is_most: bool = False

    @property
    def is_over(self) -> bool:
        most = max(self.actual or 0, self.projected or 0)
        return bool(self.estimated and most > _OVER * self.estimated)


@dataclass(frozen=True)
class Output:
    """The output of a stage so far.

    Files and events are those reported, or else those in the catalogue. The size is that in the
    catalogue.
    """

    stage: StageNow
    dataset: str
    files: int | None
    events: int | None
    size: int | None

    @property
    def is_known(self) -> bool:
        return any(value is not None for value in (self.files, self.events, self.size)) or bool(
            self.stage.located
        )


def outputs_of(progress: RequestNow) -> list[Output]:
    """Return the output of each stage. Empty if nothing is known about any."""
    named = []
    for stage in progress.stages:
        if stage.row.requested_stage:
            named.append((stage, stage.row.requested_stage.output_dataset))
    datasets = find_datasets({name for _, name in named} - {""})[0] or {}
    outputs = []
    for stage, name in named:
        files = stage.counted.files_out
        events = stage.counted.events_out
        size = None
        if dataset := datasets.get(name):
            files = dataset.files if files is None else files
            events = dataset.events if events is None else events
            size = dataset.size_bytes
        outputs.append(Output(stage, name, files, events, size))
    return outputs if any(output.is_known for output in outputs) else []


def estimate_at_start(request: Request, totals: Totals) -> StartEstimate | None:
    """Return what a request was expected to take when it was started; None if it was unknown."""
    core_seconds = request.estimated_core_seconds
    if core_seconds is None:
        return None
    return StartEstimate(core_seconds, by_limit=round(core_seconds) == totals.wall_seconds)


def uses_of(
    request: Request,
    progress: RequestNow,
    estimate: Estimate | None,
    start_estimate: StartEstimate | None,
    outputs: Sequence[Output],
) -> list[Use]:
    """Return the use of a request that has finished jobs or output, else an empty list."""
    requested = [stage for stage in progress.stages if stage.row.requested_stage]
    used = sum(stage.core_hours_used for stage in requested) * 3600
    sizes = [output.size for output in outputs if output.size is not None]
    if not used and not outputs:
        return []

    disk_bytes = None
    if estimate and estimate.disk_bytes:
        disk_bytes = estimate.disk_bytes.mid

    last = requested[-1]
    written = next((output.events for output in outputs if output.stage is last), None)
    rows = [
        _core_hours(used, _projected_core_seconds(requested), estimate, start_estimate),
        Use("Disk", "size", disk_bytes, sum(sizes) if sizes else None),
        Use(
            "Events",
            "count",
            last.row.requested_stage.events if last.row.requested_stage else None,
            written,
        ),
        *_per_job(
            request,
            [stage.row.requested_stage for stage in requested if stage.row.requested_stage],
            estimate,
        ),
    ]
    return [row for row in rows if row.actual is not None]


def _core_hours(
    used: float,
    projected: float | None,
    estimate: Estimate | None,
    start_estimate: StartEstimate | None,
) -> Use:
    """Compare with the estimate at the start or, if that is unknown, with that of today."""
    title = "Core-hours"
    unit = "core-hours"
    if start_estimate:
        return Use(
            title,
            unit,
            start_estimate.core_seconds,
            used,
            projected,
            start_estimate.basis,
            is_most=start_estimate.by_limit,
        )
    if estimate is None or estimate.core_seconds is None:
        return Use(title, unit, None, used, projected)
    basis = "with today’s past jobs"
    if estimate.by_limit:
        basis += " and time limits"
    return Use(
        title,
        unit,
        estimate.core_seconds.mid,
        used,
        projected,
        basis,
        is_most=bool(estimate.by_limit),
    )


def _projected_core_seconds(stages: Sequence[StageNow]) -> float | None:
    """Return the core time of all jobs, at what those of each stage have used so far.

    None if all have completed, or if it is unknown for a stage.
    """
    if all(stage.row.completed >= (stage.row.requested_jobs or 0) for stage in stages):
        return None
    total = 0.0
    for stage in stages:
        if not stage.row.requested_jobs or not stage.row.completed:
            return None
        jobs = max(stage.row.requested_jobs, stage.row.completed)
        total += stage.core_hours_used * 3600 * jobs / stage.row.completed
    return total


def _per_job(request: Request, stages: Sequence[Stage], estimate: Estimate | None) -> list[Use]:
    """Return time and memory per job, for the stages that exceed their estimates most."""
    names = [stage.name.casefold() for stage in stages]
    estimates = dict(zip(names, estimate.stages if estimate else (), strict=False))
    by_excess: list[tuple[float, list[Use]]] = []
    for history in StageHistory.objects.filter(request=request):
        stage_estimate = estimates.get(history.name)
        if history.completed and stage_estimate and stage_estimate.past_jobs >= ENOUGH:
            rows = _uses_per_job(history, stage_estimate)
            excess = max(
                ((row.actual or 0) / row.estimated for row in rows if row.estimated), default=0.0
            )
            by_excess.append((excess, rows))

    by_excess.sort(key=lambda stage: -stage[0])
    return list(chain.from_iterable(rows for _, rows in by_excess[:MOST_STAGES]))


def _basis_of_time(guess: StageEstimate) -> str:
    """Return what an estimated time per job is based on."""
    basis = f"median of {guess.jobs_text}"
    return f"{basis}, scaled by events" if guess.scaled else basis


def _uses_per_job(row: StageHistory, guess: StageEstimate) -> list[Use]:
    rows = []
    if guess.wall_used and row.wall_seconds:
        rows.append(
            Use(
                f"{row.name} time per job",
                "time",
                guess.wall_used[MEDIAN],
                row.wall_seconds[MEDIAN],
                basis=_basis_of_time(guess),
            )
        )
    if guess.memory_used and row.memory_bytes:
        rows.append(
            Use(f"{row.name} memory", "size", guess.memory_used[_MOST], row.memory_bytes[_MOST])
        )
    return [row for row in rows if row.estimated]
