"""What the page of the files of a stage shows."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import Count, Sum

from apps.datasets.domain.ledger import totals_of
from apps.datasets.enums import NOT_IN_A_JOB, FileState
from apps.datasets.models import (
    FileTotals,
    InputFile,
    KnownDataset,
    OutputFile,
    OutputTotals,
    RepeatedResult,
)
from apps.diagnosis.models import FailureGroup, Verdict
from apps.jobs.models import Job
from apps.production.models import Request, Stage
from apps.submission.domain.arrays.grouping import Grouping

#: Failed files whose reasons are looked up; the others are one row.
MOST_EXPLAINED = 2_000
#: The events of no more files without a job, or given up, are summed up.
MOST_SUMMED = 5_000
#: Output files, and files done twice, that the page shows.
SHOWN_OUTPUTS = 5
SHOWN_DOUBLED = 10
#: Merged files that no longer count, which the page shows.
SHOWN_WITHDRAWN = 10


@dataclass(frozen=True)
class StageTab:
    """A stage, and its totals if it has a ledger."""

    stage: Stage
    totals: FileTotals | None


@dataclass(frozen=True)
class MissingFiles:
    """Files that are not done for one reason.

    `verdict` and `group` belong to the jobs that failed with them, if these were analysed.
    """

    state: FileState
    title: str
    files: int
    oldest_at: datetime
    verdict: str = ""
    group: FailureGroup | None = None


@dataclass(frozen=True)
class FileResult:
    """A completed job of a file that was done twice, with what it wrote.

    The job is None if its row was moved to the files of old months.
    """

    key: int
    job: Job | None
    counts: bool
    outputs: Sequence[OutputFile]

    @property
    def events(self) -> int | None:
        """The events of its outputs; None if it did not report them all."""
        events = 0
        for output in self.outputs:
            if output.events is None:
                return None
            events += output.events
        return events if self.outputs else None


@dataclass(frozen=True)
class DoubledFile:
    """A file that several jobs completed with."""

    file: InputFile
    results: Sequence[FileResult]


@dataclass(frozen=True)
class FilesPage:
    """The files of a stage. Without `totals` the portal does not know them."""

    tabs: Sequence[StageTab]
    stage: Stage
    totals: FileTotals | None = None
    missing: Sequence[MissingFiles] = ()
    missing_events: int | None = None
    outputs: Sequence[OutputFile] = ()
    output_totals: OutputTotals = field(default_factory=OutputTotals)
    doubled: Sequence[DoubledFile] = ()
    input_answer: KnownDataset | None = None
    output_answer: KnownDataset | None = None
    #: The stage whose output files this one merges, and how it groups them.
    source: Stage | None = None
    grouping: str = ""
    #: Files that no longer count in that stage, although a job was to read them.
    withdrawn: Sequence[InputFile] = ()
    merged_by: Sequence[Stage] = ()

    @property
    def need_a_job(self) -> int:
        """Files that no job reads and that no user gave up."""
        return self.totals.waiting + self.totals.failed if self.totals else 0


def files_page(request: Request, position: int | None) -> FilesPage | None:
    """Return the files of a stage in a fixed number of queries; None if it does not exist.

    Without a position: of the first stage that has a ledger and is not done.
    """
    totals = totals_of(request)
    stages = list(request.stages.all())
    tabs = [StageTab(stage, totals.get(stage.position)) for stage in stages]
    if position is None:
        position = _first_unfinished(tabs)
    if position >= len(stages):
        return None
    stage = stages[position]
    stage_totals = totals.get(position)
    answers = _catalogue_answers([stage.input_dataset, stage.output_dataset])
    if stage_totals is None:
        return FilesPage(
            tabs,
            stage,
            output_totals=OutputTotals.objects.filter(stage=stage).first() or OutputTotals(),
            input_answer=answers.get(stage.input_dataset),
            output_answer=answers.get(stage.output_dataset),
        )
    source = None
    merged_by = []
    for tab in tabs:
        if tab.stage.pk == stage_totals.source_id:
            source = tab.stage
        if tab.totals and tab.totals.source_id == stage.pk:
            merged_by.append(tab.stage)
    withdrawn = InputFile.objects.filter(stage=stage, is_withdrawn=True).order_by("pk")
    return FilesPage(
        tabs,
        stage,
        stage_totals,
        missing=_missing_by_reason(stage, stage_totals),
        missing_events=_missing_events(stage, stage_totals),
        outputs=_newest_outputs(stage),
        output_totals=OutputTotals.objects.filter(stage=stage).first() or OutputTotals(),
        doubled=_doubled_files(stage) if stage_totals.doubled else (),
        input_answer=answers.get(stage.input_dataset),
        output_answer=answers.get(stage.output_dataset),
        source=source,
        grouping=str(Grouping.of(stage.arguments)) if source else "",
        withdrawn=list(withdrawn[:SHOWN_WITHDRAWN]) if source else (),
        merged_by=merged_by,
    )


def _first_unfinished(tabs: Iterable[StageTab]) -> int:
    """Return the position of the first stage with files that are not done, else of the first."""
    with_ledger = [tab for tab in tabs if tab.totals]
    for tab in with_ledger:
        if tab.totals and tab.totals.unfinished:
            return tab.stage.position
    return with_ledger[0].stage.position if with_ledger else 0


def _newest_outputs(stage: Stage) -> list[OutputFile]:
    """Return the newest output files that count, of the newest hundred times as many."""
    newest = OutputFile.objects.filter(stage=stage).order_by("-pk")[: 100 * SHOWN_OUTPUTS]
    return [file for file in newest if file.counts][:SHOWN_OUTPUTS]


def _catalogue_answers(names: Iterable[str]) -> dict[str, KnownDataset]:
    """Return what a catalogue last answered about these datasets, for those that it has."""
    answers = {}
    rows = KnownDataset.objects.filter(name__in=[name for name in names if name], exists=True)
    for answer in rows.select_related("catalogue").order_by("-catalogue__name"):
        answers[answer.name] = answer
    return answers


def _missing_by_reason(stage: Stage, totals: FileTotals) -> list[MissingFiles]:
    """Return the files that are not done by reason, most first within a state."""
    missing = _failed_by_reason(stage, totals) if totals.failed else []
    titles = {
        FileState.TAKEN: "Their jobs are planned, queued or running",
        FileState.WAITING: "Waiting for their group" if totals.source_id else "Not in a job yet",
        FileState.GIVEN_UP: "Given up",
    }
    for state, title in titles.items():
        files = getattr(totals, state.value)
        first = InputFile.objects.filter(stage=stage, state=state).order_by("pk").first()
        if files and first:
            missing.append(MissingFiles(state, title, files, first.changed_at))
    return missing


def _failed_by_reason(stage: Stage, totals: FileTotals) -> list[MissingFiles]:
    """Return the failed files by the failure group or verdict of their jobs, most first."""
    failed = InputFile.objects.filter(stage=stage, state=FileState.FAILED).order_by("pk")
    files = list(failed.values_list("job_key", "changed_at")[:MOST_EXPLAINED])
    verdict_by_job = {}
    job_keys = {job_key for job_key, _ in files}
    for verdict in Verdict.objects.filter(job__in=job_keys - {None}).select_related("group"):
        verdict_by_job[verdict.job_id] = verdict
    times_by_reason: dict[tuple[FailureGroup | None, str], list[datetime]] = defaultdict(list)
    for job_key, changed_at in files:
        verdict_of_job = verdict_by_job.get(job_key or 0)
        if verdict_of_job is None:
            times_by_reason[None, ""].append(changed_at)
        else:
            reason = (verdict_of_job.group, verdict_of_job.verdict)
            times_by_reason[reason].append(changed_at)

    missing = []
    for (group, kind), times in times_by_reason.items():
        if group is not None:
            title = group.title
        elif kind:
            title = "Their jobs failed, each for a reason of its own"
        else:
            title = "Their jobs failed, not analysed yet"
        missing.append(MissingFiles(FileState.FAILED, title, len(times), min(times), kind, group))
    missing.sort(key=lambda reason_files: -reason_files.files)
    if totals.failed > MOST_EXPLAINED:
        others = totals.failed - MOST_EXPLAINED
        oldest_at = min(reason_files.oldest_at for reason_files in missing)
        missing.append(
            MissingFiles(
                FileState.FAILED, "More that failed, not looked at here", others, oldest_at
            )
        )
    return missing


def _missing_events(stage: Stage, totals: FileTotals) -> int | None:
    """Return the events of the files that no job reads or that were given up.

    None if unknown, or if these files are too many.
    """
    if totals.waiting + totals.failed + totals.given_up > MOST_SUMMED:
        return None
    states = [*NOT_IN_A_JOB, FileState.GIVEN_UP]
    files = InputFile.objects.filter(stage=stage, state__in=states)
    sums = files.aggregate(files=Count("pk"), known=Count("events"), events=Sum("events"))
    return sums["events"] if sums["files"] == sums["known"] else None


def _doubled_files(stage: Stage) -> list[DoubledFile]:
    files = list(
        InputFile.objects.filter(stage=stage, is_doubled=True).order_by("pk")[:SHOWN_DOUBLED]
    )
    keys_by_file: dict[int, list[int]] = defaultdict(list)
    for file in files:
        if file.job_key is not None:
            keys_by_file[file.pk].append(file.job_key)
    for repeat in RepeatedResult.objects.filter(file__in=files).order_by("pk"):
        keys_by_file[repeat.file_id].append(repeat.job_key)
    keys = set().union(*keys_by_file.values())
    jobs = Job.objects.in_bulk(list(keys))
    outputs_by_job: dict[tuple[int | None, str], list[OutputFile]] = defaultdict(list)
    numbers = [file.number for file in files]
    for output in OutputFile.objects.filter(stage=stage, number__in=numbers).order_by("name"):
        outputs_by_job[output.number, output.key].append(output)

    doubled = []
    for file in files:
        results = []
        for key in keys_by_file[file.pk]:
            job = jobs.get(key)
            outputs = outputs_by_job.get((file.number, job.job_id), []) if job else []
            results.append(FileResult(key, job, key == file.job_key, outputs))
        doubled.append(DoubledFile(file, results))
    return doubled
