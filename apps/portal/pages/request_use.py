"""What a request was estimated to use and has used so far, and the datasets that its stages have written."""

from collections.abc import Sequence
from dataclasses import dataclass

from apps.production.domain.estimates.figures import Estimate, StageEstimate
from apps.production.domain.outputs.datasets import Dataset, find_datasets
from apps.production.models import QueueEntry, Request, Stage, StageHistory
from apps.progress.domain.progress import RequestNow, StageNow

#: Of how many stages the page shows what a job uses.
MOST_STAGES = 2
#: The place of the median and the 90th percentile in the quantiles of past and present jobs.
_MEDIAN, _MOST = 2, -1
#: Above this part of the estimate, the use is marked.
_OVER = 1.1


@dataclass(frozen=True)
class Use:
    """One quantity, estimated and actual; None if unknown. `unit` is the filter that writes it."""

    title: str
    unit: str
    estimated: float | None
    actual: float | None

    @property
    def is_over(self) -> bool:
        return bool(self.estimated and self.actual and self.actual > _OVER * self.estimated)


@dataclass(frozen=True)
class Output:
    """The output of a stage so far: files and events as reported, else by the catalogue; the size by the catalogue."""

    stage: StageNow
    dataset: str
    files: int | None
    events: int | None
    size: int | None

    @property
    def is_known(self) -> bool:
        return any(value is not None for value in (self.files, self.events, self.size)) or bool(self.stage.located)


def outputs_of(progress: RequestNow) -> list[Output]:
    """Return what each stage has written; empty if nothing is known of any."""
    named = [(one, one.row.asked.output_dataset) for one in progress.stages if one.row.asked]
    known = find_datasets({name for _, name in named} - {""})[0] or {}
    found = [_output(one, name, known.get(name)) for one, name in named]
    return found if any(one.is_known for one in found) else []


def _output(stage: StageNow, name: str, dataset: Dataset | None) -> Output:
    files, events = stage.counted.files_out, stage.counted.events_out
    if dataset is None:
        return Output(stage, name, files, events, None)
    return Output(
        stage,
        name,
        dataset.files if files is None else files,
        dataset.events if events is None else events,
        dataset.size_bytes,
    )


def uses_of(request: Request, progress: RequestNow, estimate: Estimate | None, outputs: Sequence[Output]) -> list[Use]:
    """Return the use of a request whose jobs have finished or that has output, else nothing."""
    asked = [one for one in progress.stages if one.row.asked]
    used = sum(one.core_hours_used for one in asked) * 3600
    sizes = [one.size for one in outputs if one.size is not None]
    if not used and not outputs:
        return []
    last = asked[-1]
    written = next((one.events for one in outputs if one.stage is last), None)
    hours, disk = (estimate.core_seconds, estimate.disk_bytes) if estimate else (None, None)
    entry: QueueEntry | None = getattr(request, "queue_entry", None)
    rows = [
        Use("Core-hours", "core-hours", hours.mid if hours else entry.core_seconds if entry else None, used),
        Use("Disk", "size", disk.mid if disk else None, sum(sizes) if sizes else None),
        Use("Events", "count", last.row.asked.events if last.row.asked else None, written),
        *_per_job(request, [one.row.asked for one in asked if one.row.asked], estimate),
    ]
    return [one for one in rows if one.actual is not None]


def _per_job(request: Request, stages: Sequence[Stage], estimate: Estimate | None) -> list[Use]:
    """Return time and memory of a job, of the stages that use most more than estimated."""
    past = dict(zip([stage.name.casefold() for stage in stages], estimate.stages if estimate else (), strict=False))
    found: list[tuple[float, list[Use]]] = []
    for row in StageHistory.objects.filter(request=request):
        guess = past.get(row.name)
        if row.completed and guess is not None and guess.past_jobs:
            rows = _of_stage(row, guess)
            found.append((max((u.actual or 0) / u.estimated for u in rows if u.estimated), rows) if rows else (0, []))
    found.sort(key=lambda one: -one[0])
    return [use for _, rows in found[:MOST_STAGES] for use in rows]


def _of_stage(row: StageHistory, guess: StageEstimate) -> list[Use]:
    rows = []
    if guess.wall_used and row.wall_seconds:
        rows.append(Use(f"{row.name} time per job", "time", guess.wall_used[_MEDIAN], row.wall_seconds[_MEDIAN]))
    if guess.memory_used and row.memory_bytes:
        rows.append(Use(f"{row.name} memory", "size", guess.memory_used[_MOST], row.memory_bytes[_MOST]))
    return [one for one in rows if one.estimated]
