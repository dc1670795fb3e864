"""The ledgers of stages that merge the output files of an earlier stage of their request.

Their input files are the output files of that stage that count: they follow them, in the
transaction of each change. A file that is already assigned to a job stays, and is marked as
withdrawn if it no longer counts. One that a person gave up stays, too.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery

from apps.datasets.domain.ledger import lock_ledger, move_totals
from apps.datasets.enums import FileState
from apps.datasets.models import FileTotals, InputFile, OutputFile
from apps.production.enums import PORTAL
from apps.production.models import Stage

#: Source jobs whose files are passed on in one statement.
_NUMBERS_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True)
class LateFile:
    """A waiting file whose source job or run is already assigned to a job."""

    name: str
    source_number: int | None
    run: int | None


@transaction.atomic
def start_merge(*, stage: Stage, source: Stage, at: datetime) -> None:
    """Begin the ledger of a stage that merges the output files of an earlier one.

    From now on these count only once their jobs have completed.
    """
    if FileTotals.objects.filter(stage=stage).exists():
        return
    FileTotals.objects.get_or_create(stage=source)
    lock_ledger(source)
    FileTotals.objects.get_or_create(stage=stage, defaults={"source": source})
    numbers = set(source.output_files.order_by().values_list("number", flat=True).distinct())
    pass_on_outputs(source, {number for number in numbers if number is not None}, at=at)


@transaction.atomic
def pass_on_outputs(source: Stage, numbers: Collection[int], *, at: datetime) -> None:
    """Bring the ledgers of stages that merge the outputs of these jobs of a stage up to date.

    The caller locks the ledger of `source`. Repeating it changes nothing.
    """
    if not numbers:
        return
    merges = FileTotals.objects.filter(source=source).select_related("stage")
    for totals in merges.order_by("stage__position"):
        lock_ledger(totals.stage)
        ordered = sorted(numbers)
        for start in range(0, len(ordered), _NUMBERS_AT_ONCE):
            part = ordered[start : start + _NUMBERS_AT_ONCE]
            keys = _keys_of_changed(totals.stage, source, part)
            if keys:
                files = InputFile.objects.filter(pk__in=keys).order_by()
                _remove_waiting(totals.stage, source, files)
                _mark_withdrawn(source, files, at)
                _name_source_that_counts(source, files)
            _add_counting(totals.stage, source, part, at)


def _keys_of_changed(stage: Stage, source: Stage, numbers: Sequence[int]) -> list[int]:
    """Return the primary keys of files that these jobs added or wrote, and that may have changed.

    Several jobs may write a name: the one that added it is not the only one to follow. Files that
    their source job wrote and that count are left out: most do.
    """
    written = OutputFile.objects.filter(stage=source, number__in=numbers)
    files = InputFile.objects.filter(stage=stage).order_by()
    added = files.filter(source_number__in=numbers).values("pk")
    of_same_name = files.filter(name__in=written.values("name")).values("pk")
    rows = InputFile.objects.filter(pk__in=added.union(of_same_name)).order_by()
    changed = rows.filter(~_source_job_counts(source) | Q(is_withdrawn=True))
    return list(changed.values_list("pk", flat=True))


def _source_job_counts(source: Stage) -> Exists:
    """Match input files of which an output file of their source job counts."""
    return Exists(_counting_outputs(source).filter(number=OuterRef("source_number")))


def _counting_outputs(source: Stage) -> QuerySet[OutputFile]:
    """Return the output files of an earlier stage that count, with the name of an input file."""
    return OutputFile.objects.filter(
        stage=source, name=OuterRef("name"), counts=True, number__isnull=False
    )


def _counting(source: Stage) -> Exists:
    """Match input files with the name of an output file of an earlier stage that counts."""
    return Exists(_counting_outputs(source))


def _remove_waiting(stage: Stage, source: Stage, files: QuerySet[InputFile]) -> None:
    """Remove the files that no longer count and are assigned to no job.

    Those that a person gave up stay: they may count again, and are not merged then either.
    """
    by_person = Q(state=FileState.GIVEN_UP) & ~Q(decided_by__in=["", PORTAL])
    rows = files.filter(~_counting(source), number=None).exclude(by_person)
    changes: dict[str, int] = defaultdict(int)
    removed = []
    for pk, state in rows.values_list("pk", "state"):
        removed.append(pk)
        changes[state] -= 1
        changes["files"] -= 1
    if removed:
        InputFile.objects.filter(pk__in=removed).delete()
        move_totals(stage, changes)


def _mark_withdrawn(source: Stage, files: QuerySet[InputFile], at: datetime) -> None:
    """Mark files that no longer count though a job was to read them, and those that do again."""
    rows = files.filter(number__isnull=False)
    rows.filter(~_counting(source), is_withdrawn=False).update(is_withdrawn=True, changed_at=at)
    rows.filter(_counting(source), is_withdrawn=True).update(is_withdrawn=False, changed_at=at)


def _name_source_that_counts(source: Stage, files: QuerySet[InputFile]) -> None:
    """Let files whose source job does not count name another one that wrote them and does."""
    outputs = _counting_outputs(source)
    first = outputs.order_by("number").values("number")[:1]
    counting = files.filter(_counting(source)).exclude(_source_job_counts(source))
    counting.update(source_number=Subquery(first))


# A job that reports no run of a file wrote it from files of one run, or of several.
_ADD = """
INSERT INTO datasets_inputfile
    (stage_id, name, run, events, size_bytes, source_number, state, is_doubled, is_withdrawn,
     reason, decided_by, changed_at)
SELECT %(stage)s, output.name, coalesce(min(output.run), min(input.run)), min(output.events),
    min(output.size_bytes), min(output.number), 'waiting', false, false, '', '', %(at)s
FROM datasets_outputfile AS output
LEFT JOIN (
    SELECT number, min(run) AS run FROM datasets_inputfile
    WHERE stage_id = %(source)s AND number = ANY(%(numbers)s)
    GROUP BY number HAVING count(DISTINCT run) = 1
) AS input ON input.number = output.number
WHERE output.stage_id = %(source)s AND output.number = ANY(%(numbers)s) AND output.counts
GROUP BY output.name
ORDER BY min(output.id)
ON CONFLICT (stage_id, name) DO NOTHING
"""


def _add_counting(stage: Stage, source: Stage, numbers: Sequence[int], at: datetime) -> None:
    """Add the files that count and are not in the ledger yet. A name is in it once."""
    parameters: dict[str, Any] = {
        "stage": stage.pk,
        "source": source.pk,
        "numbers": list(numbers),
        "at": at,
    }
    with connection.cursor() as cursor:
        cursor.execute(_ADD, parameters)
        added = cursor.rowcount
    move_totals(stage, {"files": added, "waiting": added})


def late_files(stage: Stage, *, keeps_runs: bool) -> tuple[list[LateFile], list[LateFile]]:
    """Return the waiting files whose source job or run is already assigned to a job.

    Those of a source job replace files that no longer count. Those of a run are looked for only if
    runs are kept together. Files that a user took back are left out. The caller locks the ledger.
    """
    waiting = _undecided(stage)
    withdrawn = InputFile.objects.filter(stage=stage, is_withdrawn=True)
    source_numbers = set(withdrawn.values_list("source_number", flat=True)) - {None}
    replacements = []
    if source_numbers:
        replacements = _late(waiting.filter(source_number__in=source_numbers))
    if not keeps_runs:
        return replacements, []

    runs = set(waiting.filter(run__isnull=False).order_by().values_list("run", flat=True))
    in_jobs = InputFile.objects.filter(stage=stage, run__in=runs, number__isnull=False)
    started_runs = set(in_jobs.order_by().values_list("run", flat=True)) if runs else set()
    replaced = {file.name for file in replacements}
    of_started_runs = []
    if started_runs:
        for file in _late(waiting.filter(run__in=started_runs)):
            if file.name not in replaced:
                of_started_runs.append(file)
    return replacements, of_started_runs


def _undecided(stage: Stage) -> QuerySet[InputFile]:
    return InputFile.objects.filter(
        stage=stage, state=FileState.WAITING, number=None, decided_by=""
    )


def _late(files: QuerySet[InputFile]) -> list[LateFile]:
    columns = files.order_by("pk").values_list("name", "source_number", "run")
    return [LateFile(*row) for row in columns]


def closed_runs(source: Stage, runs: Iterable[int]) -> set[int]:
    """Return those of these runs of which the jobs of a stage write no more files.

    These are runs that it has input files of, all of them done or given up.
    """
    rows = InputFile.objects.filter(stage=source, run__in=list(runs)).order_by()
    final = Q(state__in=[FileState.DONE, FileState.GIVEN_UP])
    known = set(rows.values_list("run", flat=True).distinct())
    open_runs = set(rows.exclude(final).values_list("run", flat=True).distinct())
    return {run for run in known - open_runs if run is not None}


def newest_run(source: Stage) -> int | None:
    """Return the run of the newest input file of a stage that has one."""
    files = InputFile.objects.filter(stage=source, run__isnull=False)
    return files.order_by("-pk").values_list("run", flat=True).first()
