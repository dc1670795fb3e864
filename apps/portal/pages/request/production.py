"""The production of a request: its progress, output, data quality, and estimated and actual use."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from apps.production.domain.estimates.figures import ENOUGH, MEDIAN, Estimate, StageEstimate
from apps.production.domain.outputs.datasets import find_datasets
from apps.production.domain.requests.status import RequestTotals
from apps.production.enums import RequestState
from apps.production.models import Request, Stage, StageHistory
from apps.progress.domain.progress import RequestNow, StageNow, progress_now
from apps.quality.domain.data_quality import DataQuality, data_quality_of

#: For how many stages the page shows the use per job.
MOST_STAGES = 2
#: The position of the 90th percentile in the quantiles of jobs.
_MOST = -1
#: Use above this fraction of the estimate is marked.
_OVER = 1.1
_WITH_OUTPUT = frozenset(
    {
        RequestState.RUNNING,
        RequestState.COMPLETING,
        RequestState.DATA_QUALITY,
        RequestState.DONE,
        RequestState.DONE_PARTIAL,
    }
)


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
            self.stage.is_located
        )


@dataclass(frozen=True)
class Production:
    """The production of a request, which begins with its approval."""

    progress: RequestNow | None
    outputs: list[Output]
    uses: list[Use]
    start_estimate: StartEstimate | None
    #: Only once there can be output.
    quality: DataQuality | None


def quality_of_output(request: Request) -> DataQuality | None:
    """Return the data quality of a request once there can be output."""
    if request.state not in _WITH_OUTPUT:
        return None
    return data_quality_of(request)


def production_of(
    request: Request,
    *,
    totals: RequestTotals,
    estimate: Estimate | None,
    quality: DataQuality | None,
    at: datetime,
) -> Production:
    start_estimate = None
    if request.estimated_core_seconds is not None:
        core_seconds = request.estimated_core_seconds
        by_limit = round(core_seconds) == totals.wall_seconds
        start_estimate = StartEstimate(core_seconds, by_limit=by_limit)

    progress = None
    outputs: list[Output] = []
    uses: list[Use] = []
    if request.approved_at:
        progress = progress_now(request, at=at)
        outputs = outputs_of(progress)
        uses = uses_of(request, progress, estimate, start_estimate, outputs)

    return Production(progress, outputs, uses, start_estimate, quality)


def outputs_of(progress: RequestNow) -> list[Output]:
    """Return the output of each stage. Empty if nothing is known about any."""
    named = []
    for stage in progress.stages:
        if stage.progress.requested_stage:
            named.append((stage, stage.progress.requested_stage.output_dataset))
    datasets = find_datasets({name for _, name in named} - {""})[0] or {}
    outputs = []
    for stage, name in named:
        files = stage.counts.files_out
        events = stage.counts.events_out
        size = None
        if dataset := datasets.get(name):
            files = dataset.files if files is None else files
            events = dataset.events if events is None else events
            size = dataset.size_bytes
        outputs.append(Output(stage, name, files, events, size))
    return outputs if any(output.is_known for output in outputs) else []


def uses_of(
    request: Request,
    progress: RequestNow,
    estimate: Estimate | None,
    start_estimate: StartEstimate | None,
    outputs: Sequence[Output],
) -> list[Use]:
    """Return the use of a request that has finished jobs or output, else an empty list."""
    requested = [stage for stage in progress.stages if stage.progress.requested_stage]
    used = sum(stage.core_hours_used for stage in requested) * 3600
    sizes = [output.size for output in outputs if output.size is not None]
    if not used and not outputs:
        return []

    disk_bytes = None
    if estimate and estimate.disk_bytes:
        disk_bytes = estimate.disk_bytes.mid

    last = requested[-1]
    written = next((output.events for output in outputs if output.stage is last), None)
    uses = [
        _core_hours(used, _projected_core_seconds(requested), estimate, start_estimate),
        Use("Disk", "size", disk_bytes, sum(sizes) if sizes else None),
        Use(
            "Events",
            "count",
            last.progress.requested_stage.events if last.progress.requested_stage else None,
            written,
        ),
        *_per_job(
            request,
            [
                stage.progress.requested_stage
                for stage in requested
                if stage.progress.requested_stage
            ],
            estimate,
        ),
    ]
    return [use for use in uses if use.actual is not None]


def _core_hours(
    used: float,
    projected: float | None,
    estimate: Estimate | None,
    start_estimate: StartEstimate | None,
) -> Use:
    """Compare with the estimate at the start or, if that is unknown, with today's."""
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
    """Return the core time of all jobs, at what the jobs of each stage have used so far.

    None if all have completed, or if it is unknown for a stage.
    """
    if all(stage.progress.completed >= (stage.progress.requested_jobs or 0) for stage in stages):
        return None
    total = 0.0
    for stage in stages:
        if not stage.progress.requested_jobs or not stage.progress.completed:
            return None
        jobs = max(stage.progress.requested_jobs, stage.progress.completed)
        total += stage.core_hours_used * 3600 * jobs / stage.progress.completed
    return total


def _per_job(request: Request, stages: Sequence[Stage], estimate: Estimate | None) -> list[Use]:
    """Return time and memory per job, for the stages that exceed their estimates most."""
    names = [stage.name.casefold() for stage in stages]
    estimates = dict(zip(names, estimate.stages if estimate else (), strict=False))
    by_excess: list[tuple[float, list[Use]]] = []
    for history in StageHistory.objects.filter(request=request):
        stage_estimate = estimates.get(history.name)
        if history.completed and stage_estimate and stage_estimate.past_jobs >= ENOUGH:
            uses = _uses_per_job(history, stage_estimate)
            excess = max(
                ((use.actual or 0) / use.estimated for use in uses if use.estimated), default=0.0
            )
            by_excess.append((excess, uses))

    by_excess.sort(key=lambda stage: -stage[0])
    return list(chain.from_iterable(uses for _, uses in by_excess[:MOST_STAGES]))


def _uses_per_job(history: StageHistory, estimate: StageEstimate) -> list[Use]:
    uses = []
    if estimate.wall_used and history.wall_seconds:
        basis = f"median of {estimate.jobs_text}"
        if estimate.scaled:
            basis += ", scaled by events"
        uses.append(
            Use(
                f"{history.name} time per job",
                "time",
                estimate.wall_used[MEDIAN],
                history.wall_seconds[MEDIAN],
                basis=basis,
            )
        )
    if estimate.memory_used and history.memory_bytes:
        uses.append(
            Use(
                f"{history.name} memory",
                "size",
                estimate.memory_used[_MOST],
                history.memory_bytes[_MOST],
            )
        )
    return [use for use in uses if use.estimated]
