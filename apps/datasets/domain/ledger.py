"""The ledger of files: where each input file of a stage stands, and which output files count.

The state of a file follows from the jobs of its number, which the app that submits them knows. Each
change moves the totals of the stage in the same transaction; their row is the lock of the ledger.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection, transaction
from django.db.models import Count, Exists, F, OuterRef

from apps.datasets.enums import NOT_IN_A_JOB, FileState
from apps.datasets.models import (
    FileTotals,
    InputFile,
    OutputFile,
    OutputTotals,
    RepeatedResult,
)
from apps.production.models import Request, Stage


@dataclass(frozen=True, slots=True)
class NewFile:
    """An input file, with the number of the job that is to read it if that is known."""

    name: str
    run: int | None = None
    events: int | None = None
    size_bytes: int | None = None
    number: int | None = None


@dataclass(frozen=True, slots=True)
class WaitingFile:
    """An input file that is not assigned to a job yet."""

    name: str
    run: int | None
    size_bytes: int | None
    found_at: datetime


@dataclass(frozen=True, slots=True)
class EndedJob:
    """An ended job that read the files of a number."""

    key: int
    job_id: str


@dataclass
class NumberOutcome:
    """The outcomes of the jobs of a number in all arrays: the first job, and its retries.

    `completed` and `failed` are in the order in which they ended. `is_taken` says whether a job of
    this number is planned, queued or running.
    """

    is_taken: bool = False
    completed: list[EndedJob] = field(default_factory=list)
    failed: list[EndedJob] = field(default_factory=list)

    @property
    def state(self) -> FileState:
        if self.completed:
            return FileState.DONE
        if self.is_taken:
            return FileState.TAKEN
        return FileState.FAILED if self.failed else FileState.WAITING

    def job_that_counts(self, counted_before: int | None, reporter: str = "") -> EndedJob | None:
        """Return the completed job whose result counts, or the last one that failed.

        A result that counted before still does: that of the job with this key, or, without input
        files, that of the job with the ID `reporter`.
        """
        if self.state == FileState.FAILED:
            return self.failed[-1]
        for job in self.completed:
            if job.key == counted_before:
                return job
        for job in self.completed:
            if counted_before is None and job.job_id == reporter:
                return job
        return self.completed[0] if self.completed else None


@dataclass(frozen=True, slots=True)
class CountingSums:
    """Number, events and bytes of output files that count."""

    files: int = 0
    events: int = 0
    size_bytes: int = 0

    def minus(self, other: "CountingSums") -> "CountingSums":
        return CountingSums(
            self.files - other.files,
            self.events - other.events,
            self.size_bytes - other.size_bytes,
        )


def move_sums(stage: Stage, change: CountingSums) -> None:
    """Add a change to the sums over the output files of a stage that count."""
    if change != CountingSums():
        OutputTotals.objects.filter(stage=stage).update(
            counting_files=F("counting_files") + change.files,
            counting_events=F("counting_events") + change.events,
            counting_bytes=F("counting_bytes") + change.size_bytes,
        )


def has_started_ledger(request: Request) -> bool:
    """Return whether a file of a request was processed, failed, given up or written."""
    untouched = [FileState.WAITING, FileState.TAKEN]
    moved = InputFile.objects.filter(stage__request=request).exclude(state__in=untouched)
    return moved.exists() or OutputFile.objects.filter(stage__request=request).exists()


def discard_ledgers(request: Request) -> None:
    """Forget the input files of a request without jobs: its next start lists them again.

    Each list is locked, so that no run that compares it with the jobs is under way.
    """
    stages = Stage.objects.filter(request=request, file_totals__isnull=False)
    for stage in stages.order_by("position"):
        lock_ledger(stage)
    InputFile.objects.filter(stage__request=request).delete()
    FileTotals.objects.filter(stage__request=request).delete()


def totals_of(request: Request) -> dict[int, FileTotals]:
    """Return the totals of the stages with a ledger, by position of the stage."""
    file_totals = FileTotals.objects.filter(stage__request=request).select_related("stage")
    return {totals.stage.position: totals for totals in file_totals}


def has_ledger(stage: Stage) -> bool:
    return FileTotals.objects.filter(stage=stage).exists()


@transaction.atomic
def add_files(*, stages: Iterable[Stage], files: Sequence[NewFile], at: datetime) -> None:
    """Add waiting files to the ledgers of these stages, which begin with them if there are none.

    Fails as a whole if a stage has one of the files already.
    """
    for stage in stages:
        FileTotals.objects.get_or_create(stage=stage)
        lock_ledger(stage)
        rows = []
        for file in files:
            rows.append(
                InputFile(
                    stage=stage,
                    name=file.name,
                    run=file.run,
                    events=file.events,
                    size_bytes=file.size_bytes,
                    number=file.number,
                    changed_at=at,
                )
            )
        InputFile.objects.bulk_create(rows, batch_size=5_000)
        FileTotals.objects.filter(stage=stage).update(
            files=F("files") + len(files), waiting=F("waiting") + len(files), listed_at=at
        )


def waiting_without_job(stage: Stage) -> list[WaitingFile]:
    """Return the waiting files of a stage that are not assigned to a job, oldest first."""
    files = InputFile.objects.filter(stage=stage, number=None, state=FileState.WAITING)
    columns = ("name", "run", "size_bytes", "changed_at")
    return [WaitingFile(*row) for row in files.order_by("pk").values_list(*columns)]


def assign_numbers(*, stages: Sequence[Stage], number_by_name: Mapping[str, int]) -> None:
    """Assign files of these stages to jobs. The caller locks the request."""
    statement = """
        UPDATE datasets_inputfile AS file SET number = job.number
        FROM unnest(%s::text[], %s::int[]) AS job (name, number)
        WHERE file.stage_id = ANY(%s) AND file.name = job.name
    """
    with connection.cursor() as cursor:
        cursor.execute(
            statement,
            [list(number_by_name), list(number_by_name.values()), [stage.pk for stage in stages]],
        )


def files_of_numbers(stage: Stage, numbers: Iterable[int]) -> dict[int, list[str]]:
    """Return the files that the jobs of these numbers read, without those that were given up."""
    names_by_number: dict[int, list[str]] = defaultdict(list)
    files = InputFile.objects.filter(stage=stage, number__in=list(numbers)).exclude(
        state=FileState.GIVEN_UP
    )
    for number, name in files.order_by("number", "pk").values_list("number", "name"):
        if number is not None:
            names_by_number[number].append(name)
    return names_by_number


class JobNumber(NamedTuple):
    """The number of a job in its stage; `position` is that of the stage in the request."""

    request_pk: int
    position: int
    number: int


def numbers_given_up_of(request_pks: Iterable[int]) -> set[JobNumber]:
    """Return the jobs of these requests, by primary key, all of whose files were given up."""
    given_up = InputFile.objects.filter(
        stage__request__in=list(request_pks), state=FileState.GIVEN_UP, number__isnull=False
    )
    others = InputFile.objects.filter(stage=OuterRef("stage"), number=OuterRef("number")).exclude(
        state=FileState.GIVEN_UP
    )
    jobs = set()
    for request_pk, position, number in (
        given_up.filter(~Exists(others))
        .order_by()
        .values_list("stage__request", "stage__position", "number")
        .distinct()
    ):
        if number is not None:
            jobs.add(JobNumber(request_pk, position, number))
    return jobs


@transaction.atomic
def give_up_files(
    *,
    stage: Stage,
    later: Iterable[Stage],
    names: Sequence[str],
    reason: str,
    by: str,
    at: datetime,
) -> int:
    """Give up the waiting and failed files of a stage with these names; return how many.

    They do not reach the `later` stages, where they are given up as well.
    """
    columns = {"reason": reason, "decided_by": by}
    given_up = _change_state(
        stage, names, old=NOT_IN_A_JOB, new=FileState.GIVEN_UP, at=at, **columns
    )
    for later_stage in later:
        _change_state(
            later_stage, given_up, old={FileState.WAITING}, new=FileState.GIVEN_UP, at=at, **columns
        )
    return len(given_up)


@transaction.atomic
def take_back_files(*, stages: Iterable[Stage], names: Sequence[str], by: str, at: datetime) -> int:
    """Let files that were given up wait again; return how many of the first stage.

    The caller then brings their states up to date with their jobs.
    """
    counts = []
    for stage in stages:
        taken_back = _change_state(
            stage,
            names,
            old={FileState.GIVEN_UP},
            new=FileState.WAITING,
            at=at,
            reason="",
            decided_by=by,
        )
        counts.append(len(taken_back))
    return counts[0] if counts else 0


def _change_state(
    stage: Stage,
    names: Sequence[str],
    *,
    old: Collection[FileState],
    new: FileState,
    at: datetime,
    **columns: str,
) -> list[str]:
    """Move files from one of the `old` states to the new one; return the names of those moved."""
    if not names or not lock_ledger(stage):
        return []
    files = InputFile.objects.filter(stage=stage, name__in=names, state__in=old)
    changes: dict[str, int] = defaultdict(int)
    moved = []
    for name, state in files.order_by("pk").values_list("name", "state"):
        moved.append(name)
        changes[state] -= 1
        changes[new] += 1
    files.update(state=new, changed_at=at, **columns)
    move_totals(stage, changes)
    return moved


@transaction.atomic
def record_outcomes(*, stage: Stage, outcomes: Mapping[int, NumberOutcome], at: datetime) -> None:
    """Store the outcomes of the jobs of these numbers; safe to repeat.

    A file that was given up becomes done if a late job completes with it; no other outcome changes
    it. The caller locks the ledger.
    """
    if not outcomes:
        return
    counted_before = dict(
        InputFile.objects.filter(stage=stage, number__in=list(outcomes), state=FileState.DONE)
        .order_by()
        .values_list("number", "job_key")
        .distinct()
    )
    reporters = _reporters_that_count(stage, outcomes)
    counting: dict[int, EndedJob | None] = {}
    for number, outcome in outcomes.items():
        counting[number] = outcome.job_that_counts(
            counted_before.get(number), reporters.get(number, "")
        )
    _move_files(stage, outcomes, counting, at)
    _record_repeats(stage, outcomes, counting, at)
    _mark_outputs(stage, outcomes, counting)


def _reporters_that_count(
    stage: Stage, outcomes: Mapping[int, NumberOutcome]
) -> dict[int | None, str]:
    """Return the ID of the job whose output files count, for numbers that several completed."""
    doubled = [number for number, outcome in outcomes.items() if len(outcome.completed) > 1]
    if not doubled:
        return {}
    output_files = OutputFile.objects.filter(stage=stage, number__in=doubled, counts=True)
    return dict(output_files.order_by().values_list("number", "key").distinct())


def lock_ledger(stage: Stage) -> FileTotals | None:
    """Lock the ledger of a stage for this transaction, and return its totals; None without one."""
    return FileTotals.objects.select_for_update().filter(stage=stage).first()


_MOVE = """
WITH outcome AS (
    SELECT * FROM unnest(
        %(numbers)s::int[], %(states)s::text[], %(jobs)s::bigint[], %(doubled)s::bool[]
    ) AS row (number, state, job_key, is_doubled)
), old AS (
    SELECT file.id, file.state AS state_before, file.is_doubled AS doubled_before,
        outcome.state, outcome.job_key, outcome.is_doubled
    FROM datasets_inputfile AS file JOIN outcome USING (number)
    WHERE file.stage_id = %(stage)s
    AND (file.state, file.job_key, file.is_doubled)
        IS DISTINCT FROM (outcome.state, outcome.job_key, outcome.is_doubled)
    AND (file.state <> 'given_up' OR outcome.state = 'done')
), moved AS (
    UPDATE datasets_inputfile AS file
    SET state = old.state, job_key = old.job_key, is_doubled = old.is_doubled, changed_at = %(at)s
    FROM old WHERE file.id = old.id
)
SELECT state_before, doubled_before, state, is_doubled, count(*) FROM old GROUP BY 1, 2, 3, 4
"""


def _move_files(
    stage: Stage,
    outcomes: Mapping[int, NumberOutcome],
    counting: Mapping[int, EndedJob | None],
    at: datetime,
) -> None:
    """Store the states of the files, and move the totals by the files that changed."""
    jobs = []
    for number in outcomes:
        job = counting[number]
        jobs.append(job.key if job else None)
    parameters: dict[str, Any] = {
        "numbers": list(outcomes),
        "states": [outcome.state.value for outcome in outcomes.values()],
        "jobs": jobs,
        "doubled": [len(outcome.completed) > 1 for outcome in outcomes.values()],
        "stage": stage.pk,
        "at": at,
    }
    with connection.cursor() as cursor:
        cursor.execute(_MOVE, parameters)
        moves = cursor.fetchall()
    changes: dict[str, int] = defaultdict(int)
    for state_before, doubled_before, state, is_doubled, files in moves:
        changes[state_before] -= files
        changes[state] += files
        changes["doubled"] += files * (int(is_doubled) - int(doubled_before))
    move_totals(stage, changes)


def move_totals(stage: Stage, changes: Mapping[str, int]) -> None:
    """Add changes to the totals of a stage, by column. The caller locks the ledger."""
    new_values = {}
    for column, change in changes.items():
        if change:
            new_values[column] = F(column) + change
    if new_values:
        FileTotals.objects.filter(stage=stage).update(**new_values)


def _record_repeats(
    stage: Stage,
    outcomes: Mapping[int, NumberOutcome],
    counting: Mapping[int, EndedJob | None],
    at: datetime,
) -> None:
    """Store which other jobs completed with the files of each number."""
    repeats: dict[int, list[EndedJob]] = {}
    for number, outcome in outcomes.items():
        others = [job for job in outcome.completed if job != counting[number]]
        if others:
            repeats[number] = others
    known = RepeatedResult.objects.filter(file__stage=stage, file__number__in=list(outcomes))
    known_pairs = set(known.values_list("file", "job_key"))
    pairs = set()
    files = InputFile.objects.filter(stage=stage, number__in=list(repeats))
    for file, number_of_file in files.values_list("pk", "number"):
        if number_of_file is not None:
            for job in repeats[number_of_file]:
                pairs.add((file, job.key))
    for file, key in known_pairs - pairs:
        RepeatedResult.objects.filter(file=file, job_key=key).delete()
    new_rows = []
    for file, key in sorted(pairs - known_pairs):
        new_rows.append(RepeatedResult(file_id=file, job_key=key, at=at))
    RepeatedResult.objects.bulk_create(new_rows)


_MARK = """
WITH old AS (
    SELECT output.id, output.counts AS counted, output.events, output.size_bytes,
        job.number, job.counts
    FROM unnest(%s::text[], %s::int[], %s::bool[]) AS job (key, number, counts)
    JOIN datasets_outputfile AS output ON output.key = job.key
    WHERE output.stage_id = %s
    AND (output.number, output.counts) IS DISTINCT FROM (job.number, job.counts)
), marked AS (
    UPDATE datasets_outputfile AS output SET number = old.number, counts = old.counts
    FROM old WHERE output.id = old.id
)
SELECT count(*), coalesce(sum(counts::int - counted::int), 0),
    coalesce(sum(events * (counts::int - counted::int)), 0),
    coalesce(sum(size_bytes * (counts::int - counted::int)), 0)
FROM old
"""


def _mark_outputs(
    stage: Stage,
    outcomes: Mapping[int, NumberOutcome],
    counting: Mapping[int, EndedJob | None],
) -> None:
    """Mark which outputs of ended jobs count: only outputs of the completed job that counts do."""
    keys = []
    numbers = []
    counts = []
    for number, outcome in outcomes.items():
        for job in [*outcome.completed, *outcome.failed]:
            keys.append(job.job_id)
            numbers.append(number)
            counts.append(outcome.state == FileState.DONE and job == counting[number])
    with connection.cursor() as cursor:
        cursor.execute(_MARK, [keys, numbers, counts, stage.pk])
        changed, files, events, size_bytes = cursor.fetchone()
    if changed:
        OutputTotals.objects.filter(stage=stage).update(revision=F("revision") + 1)
        move_sums(stage, CountingSums(int(files), int(events), int(size_bytes)))


@transaction.atomic
def correct_totals(stage: Stage, *, at: datetime) -> dict[str, tuple[int, int]]:
    """Compare the totals of a stage with a recount, and correct those that differ.

    Return these as stored and as counted, by column.
    """
    totals = lock_ledger(stage)
    if totals is None:
        return {}
    counted = recount(stage)
    differences = {}
    for column, files in counted.items():
        stored = getattr(totals, column)
        if stored != files:
            differences[column] = (stored, files)
    FileTotals.objects.filter(pk=totals.pk).update(**counted, checked_at=at)
    return differences


def recount(stage: Stage) -> dict[str, int]:
    """Recount the files of a stage, and return its totals."""
    rows = InputFile.objects.filter(stage=stage).order_by()
    counted = {state.value: 0 for state in FileState}
    counted.update(rows.values_list("state").annotate(files=Count("pk")))
    files = sum(counted.values())
    doubled = rows.filter(is_doubled=True).count()
    return {**counted, "files": files, "doubled": doubled}
