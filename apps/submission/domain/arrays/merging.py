"""Merge stages: group the output files of an earlier stage into jobs, each file once."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from apps.datasets.domain.ledger import (
    WaitingFile,
    assign_numbers,
    give_up_files,
    lock_ledger,
    totals_of,
    waiting_without_job,
)
from apps.datasets.domain.merging import closed_runs, late_files, newest_run, start_merge
from apps.datasets.models import FileTotals
from apps.production.enums import PORTAL
from apps.production.models import Request, Stage
from apps.submission.domain.arrays.files import merge_sources, takes_files
from apps.submission.domain.arrays.grouping import Grouping, group_files
from apps.submission.domain.arrays.keepup import has_waiting_files, is_over, jobs_of_files
from apps.submission.domain.arrays.submissions import StageSubmissions


def start_merges(request: Request, position: int, *, at: datetime) -> None:
    """Begin the ledgers of the stages that merge the outputs of a stage, before it has jobs."""
    stages = list(request.stages.all())
    for merge_position, source in merge_sources(request).items():
        if source.position == position:
            start_merge(stage=stages[merge_position], source=source, at=at)


def take_groups(
    stage: Stage, *, source: Stage, has_ended: bool, first: int, most: int, at: datetime
) -> int:
    """Group the waiting files of a merge stage into at most `most` jobs from number `first` on.

    Return the number of jobs. `has_ended` says whether the `source` writes no more files: then no
    group waits. The caller locks the request.
    """
    if lock_ledger(stage) is None:
        return 0
    grouping = Grouping.of(stage.arguments)
    _give_up_late_files(stage, keeps_runs=grouping.keeps_runs, at=at)
    files = waiting_without_job(stage)
    if grouping.keeps_runs and not has_ended:
        files = _of_closed_runs(files, source)
    groups = group_files(files, grouping, at=at, last=has_ended, are_runs_closed=True)[:most]
    number_by_name = {}
    for number, group in enumerate(groups, start=first):
        for file in group:
            number_by_name[file.name] = number
    assign_numbers(stages=[stage], number_by_name=number_by_name)
    return len(groups)


def _give_up_late_files(stage: Stage, *, keeps_runs: bool, at: datetime) -> None:
    """Give up files that would be merged twice, or divide a run. A person can take them back."""
    replacements, of_started_runs = late_files(stage, keeps_runs=keeps_runs)
    names_by_reason: dict[str, list[str]] = defaultdict(list)
    for file in replacements:
        reason = (
            f"Other files of job {file.source_number}, which no longer count, were already taken "
            "to be merged."
        )
        names_by_reason[reason].append(file.name)
    for file in of_started_runs:
        reason = f"Other files of run {file.run} were already taken to be merged."
        names_by_reason[reason].append(file.name)
    for reason, names in names_by_reason.items():
        give_up_files(stage=stage, later=(), names=names, reason=reason, by=str(PORTAL), at=at)


def _of_closed_runs(files: Sequence[WaitingFile], source: Stage) -> list[WaitingFile]:
    """Return the files without a run, and all files of runs of which `source` writes no more.

    Of a stage that merges itself, this is not known before it has ended. The newest run of
    keep-up processing may still grow.
    """
    closed: set[int] = set()
    if not FileTotals.objects.filter(stage=source, source__isnull=False).exists():
        runs = {file.run for file in files if file.run is not None}
        closed = closed_runs(source, runs)
        if takes_files(source.request):
            closed.discard(newest_run(source) or 0)
    return [file for file in files if file.run is None or file.run in closed]


def ended_stages(request: Request, by_stage: Sequence[StageSubmissions], at: datetime) -> set[int]:
    """Return the positions of the stages whose jobs all completed, and those accepted as is.

    A merge stage ends after its source, once no file of it is waiting, taken or failed. In keep-up
    processing, each stage has completed a job for all files; after an accepted stage, only those
    that it passed on count, and no job is made of files that still wait for the first.
    """
    sources = merge_sources(request)
    totals = totals_of(request) if sources else {}
    is_by_file = takes_files(request)
    is_over_now = is_by_file and is_over(request, at)
    if is_over_now and not by_stage[0].acceptance:
        is_over_now = not has_waiting_files(request)
    expected = jobs_of_files(request) if is_by_file else 0
    ended: set[int] = set()
    for stage_submissions in by_stage:
        stage = stage_submissions.stage
        completed = stage_submissions.completed
        if stage.position in sources:
            is_ready = sources[stage.position].position in ended
            has_ended = is_ready and _is_merged(stage_submissions, totals.get(stage.position))
        elif is_by_file:
            has_ended = is_over_now and completed >= expected
            expected = min(expected, completed)
        else:
            has_ended = completed >= (stage.jobs or 0) > 0
        if has_ended or stage_submissions.acceptance:
            ended.add(stage.position)
    return ended


def _is_merged(stage_submissions: StageSubmissions, totals: FileTotals | None) -> bool:
    """Return whether each file is done or given up, and each group has a completed job."""
    if totals is None or not totals.files or totals.unfinished:
        return False
    return stage_submissions.completed >= stage_submissions.first_free
