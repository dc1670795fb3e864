"""Output files of stages: check and store what jobs and users report."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.db.models import Count, F, Sum
from django.db.models.functions import Coalesce

from apps.core.errors import InvalidFields
from apps.datasets.domain.ledger import CountingSums, move_sums
from apps.datasets.domain.merging import pass_on_outputs
from apps.datasets.enums import FileState
from apps.datasets.models import (
    MAX_FILE_NAME,
    FileTotals,
    InputFile,
    OutputFile,
    OutputTotals,
)
from apps.jobs.models import Job
from apps.production.models import Stage

#: Limits of one report, of a job, and of a stage.
FILES_A_REPORT = 1_000
FILES_A_JOB = 1_000
PARENTS_A_FILE = 1_000
PARENTS_A_REPORT = 10_000
FILES_A_STAGE = 1_000_000
#: Larger than any size in bytes, number of events or run.
LARGEST = 10**15
MAX_CHECKSUM = 200
_CHECKSUM = re.compile(
    r"adler32:[0-9a-f]{8}|md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}", re.IGNORECASE | re.ASCII
)


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file written by a job. `parents` are names of input files that it was made of.

    Without parents it is made of all input files of its job. `checksum` is such as
    `adler32:0a1b2c3d`.
    """

    name: str
    size_bytes: int
    events: int | None = None
    run: int | None = None
    checksum: str = ""
    parents: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class StoredFiles:
    """How many files of a reporter were stored, how many were new, and whether they count now.

    Files of a job that has not completed yet count once it has.
    """

    stored: int
    new: int
    counts: bool


@transaction.atomic
def store_output_files(
    *,
    stage: Stage,
    key: str,
    number: int | None,
    files: Sequence[NamedFile],
    by: str,
    at: datetime,
    replaces: bool = True,
    problems: Mapping[str, list[str]] | None = None,
) -> StoredFiles:
    """Store the files of one reporter. Reporting with the same key again replaces all of them.

    With `replaces` false it replaces only files of the same names, and adds the others.

    `number` counts the jobs of the stage, None if it is unknown. In a stage with a ledger the
    files count if the job of that ID is the one whose result counts; else they always do. Raises
    `InvalidFields` with every fault, and with the `problems` that the caller found.
    """
    parents, parent_problems = _find_parents(stage, number, files)
    all_problems = _file_problems(key, files) | parent_problems | dict(problems or {})
    if all_problems:
        raise InvalidFields(all_problems)

    # The lock of the ledger comes first, as when jobs end: see `record_outcomes`.
    is_in_ledger = FileTotals.objects.select_for_update().filter(stage=stage).exists()
    totals = _lock_totals(stage)
    counts = not is_in_ledger or _is_result_that_counts(stage, key, number)
    names = None if replaces else [file.name for file in files]
    replaced, replaced_sums = _delete_files(stage, key, names)
    if totals.files - replaced + len(files) > FILES_A_STAGE:
        raise InvalidFields({"files": [f"A stage can have at most {FILES_A_STAGE:,} files."]})
    if not replaces:
        kept = OutputFile.objects.filter(stage=stage, key=key).count()
        if kept + len(files) > FILES_A_JOB:
            raise InvalidFields({"files": [f"A job can list at most {FILES_A_JOB:,} files."]})

    number_in_ledger = number if is_in_ledger else None
    columns = {"key": key, "number": number_in_ledger, "counts": counts, "by": by, "at": at}
    _insert_files(stage, files, columns)
    _insert_parents(stage, key, files, parents)
    OutputTotals.objects.filter(pk=totals.pk).update(
        files=totals.files - replaced + len(files), revision=F("revision") + 1
    )
    sums = sums_of(files) if counts else CountingSums()
    move_sums(stage, sums.minus(replaced_sums))
    if is_in_ledger and number is not None and (counts or replaced_sums.files):
        pass_on_outputs(stage, [number], at=at)
    return StoredFiles(len(files), max(0, len(files) - replaced), counts)


def _is_result_that_counts(stage: Stage, key: str, number: int | None) -> bool:
    """Return whether the input files of a number are done with the job of this ID.

    The caller locks the ledger. The rows of old jobs are moved to files: then what counted before
    still does.
    """
    if number is None:
        return False
    done = InputFile.objects.filter(stage=stage, number=number, state=FileState.DONE)
    job_key = done.values_list("job_key", flat=True).first()
    if job_key is None:
        return False
    job_id = Job.objects.filter(pk=job_key).values_list("job_id", flat=True).first()
    if job_id is None:
        return OutputFile.objects.filter(stage=stage, key=key, counts=True).exists()
    return job_id == key


def _lock_totals(stage: Stage) -> OutputTotals:
    """Lock the totals of a stage for this transaction, and return them.

    The files of earlier versions are counted once, with the first report after them.
    """
    locked = OutputTotals.objects.select_for_update().filter(stage=stage)
    totals = locked.first()
    if totals is not None:
        return totals
    output_files = OutputFile.objects.filter(stage=stage)
    counting = output_files.filter(counts=True).aggregate(
        counting_files=Count("pk"),
        counting_events=Coalesce(Sum("events"), 0),
        counting_bytes=Coalesce(Sum("size_bytes"), 0),
    )
    OutputTotals.objects.get_or_create(
        stage=stage, defaults={"files": output_files.count(), **counting}
    )
    return locked.get()


def sums_of(files: Sequence[NamedFile]) -> CountingSums:
    """Return the sums over these files."""
    events = 0
    size_bytes = 0
    for file in files:
        events += file.events or 0
        size_bytes += file.size_bytes
    return CountingSums(len(files), events, size_bytes)


def revisions_of(request_id: int) -> dict[str, int]:
    """Return the revisions of the reported files, by primary key of the stage."""
    rows = OutputTotals.objects.filter(stage__request=request_id)
    return {str(pk): revision for pk, revision in rows.values_list("stage", "revision")}


def parents_of(files: Sequence[OutputFile], most: int = PARENTS_A_FILE) -> dict[int, list[str]]:
    """Return the names of the reported parents of these files, by primary key of the file.

    At most the first `most` of each, in one query. A file without reported parents has an empty
    list: it is made of all input files of its job.
    """
    names_by_file: dict[int, list[str]] = {file.pk: [] for file in files}
    if not names_by_file:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(_PARENTS, [list(names_by_file), most])
        for key, name in cursor.fetchall():
            names_by_file[key].append(name)
    return names_by_file


def name_problems(field: str, name: str) -> dict[str, list[str]]:
    """Return the problem of the name of a file or reporter, by field."""
    if name.strip() == name and 0 < len(name) <= MAX_FILE_NAME and name.isprintable():
        return {}
    return {field: [f"Enter 1 to {MAX_FILE_NAME} printable characters without surrounding spaces."]}


def _file_problems(key: str, files: Sequence[NamedFile]) -> dict[str, list[str]]:
    problems = name_problems("key", key)
    if not files or len(files) > FILES_A_REPORT:
        problems["files"] = [f"Post 1 to {FILES_A_REPORT:,} files."]
    names: set[str] = set()
    for place, file in enumerate(files[:FILES_A_REPORT]):
        problems |= name_problems(f"files.{place}.name", file.name)
        if file.name in names:
            problems[f"files.{place}.name"] = ["Duplicate name in this post."]
        names.add(file.name)
        for field in ("size_bytes", "events", "run"):
            value = getattr(file, field)
            if value is not None and not 0 <= value <= LARGEST:
                problems[f"files.{place}.{field}"] = [
                    f"Enter a whole number from 0 to {LARGEST:,}."
                ]
        if file.checksum and not _CHECKSUM.fullmatch(file.checksum[: MAX_CHECKSUM + 1]):
            problems[f"files.{place}.checksum"] = [
                "Enter adler32:, md5: or sha256: and the hexadecimal digits."
            ]
    return problems


def _find_parents(
    stage: Stage, number: int | None, files: Sequence[NamedFile]
) -> tuple[Mapping[str, int], dict[str, list[str]]]:
    """Return the primary keys of the parents of files by name, and the problems by field."""
    names: set[str] = set()
    references = 0
    for file in files[:FILES_A_REPORT]:
        references += len(file.parents)
        names.update(name for name in file.parents if "\0" not in name)
        if len(file.parents) > PARENTS_A_FILE or references > PARENTS_A_REPORT:
            message = (
                f"Name at most {PARENTS_A_FILE:,} parents of a file, and {PARENTS_A_REPORT:,} in "
                "one report."
            )
            return {}, {"files": [message]}
    if not references:
        return {}, {}

    input_files: dict[str, tuple[int, int | None]] = {}
    rows = InputFile.objects.filter(stage=stage, name__in=names)
    for pk, name, number_of_file in rows.values_list("pk", "name", "number"):
        input_files[name] = pk, number_of_file
    problems: dict[str, list[str]] = defaultdict(list)
    for place, file in enumerate(files[:FILES_A_REPORT]):
        seen: set[str] = set()
        for index, name in enumerate(file.parents):
            field = f"files.{place}.parents.{index}"
            if name in seen:
                problems[field] = ["Duplicate parent of this file."]
            elif name not in input_files:
                problems[field] = ["This is no input file of the stage."]
            elif number is not None and input_files[name][1] != number:
                problems[field] = ["This is an input file of another job."]
            seen.add(name)
    return {name: pk for name, (pk, _) in input_files.items()}, dict(problems)


# Plain SQL: a job waits for these, and models take three times as long for a hundred files.
_DELETE_PARENTS = """
DELETE FROM datasets_outputfile_parents AS link USING datasets_outputfile AS output
WHERE link.outputfile_id = output.id
AND output.stage_id = %(stage)s AND output.key = %(key)s
AND (%(names)s::text[] IS NULL OR output.name = ANY(%(names)s::text[]))
"""
_DELETE = """
WITH deleted AS (
    DELETE FROM datasets_outputfile
    WHERE stage_id = %(stage)s AND key = %(key)s
    AND (%(names)s::text[] IS NULL OR name = ANY(%(names)s::text[]))
    RETURNING counts, events, size_bytes
)
SELECT count(*), count(*) FILTER (WHERE counts),
    coalesce(sum(events) FILTER (WHERE counts), 0),
    coalesce(sum(size_bytes) FILTER (WHERE counts), 0)
FROM deleted
"""
_INSERT = """
INSERT INTO datasets_outputfile
    (name, size_bytes, events, run, checksum, stage_id, key, number, counts, by, at)
SELECT file.*, %(stage)s, %(key)s, %(number)s, %(counts)s, %(by)s, %(at)s
FROM unnest(
    %(names)s::text[], %(sizes)s::bigint[], %(events)s::bigint[], %(runs)s::bigint[],
    %(checksums)s::text[]
) AS file
"""
_PARENTS = """
SELECT output.id, file.name
FROM unnest(%s::bigint[]) AS output (id)
CROSS JOIN LATERAL (
    SELECT inputfile_id FROM datasets_outputfile_parents
    WHERE outputfile_id = output.id ORDER BY inputfile_id LIMIT %s
) AS link
JOIN datasets_inputfile AS file ON file.id = link.inputfile_id
ORDER BY output.id, file.id
"""
_INSERT_PARENTS = """
INSERT INTO datasets_outputfile_parents (outputfile_id, inputfile_id)
SELECT output.id, link.parent
FROM unnest(%s::text[], %s::bigint[]) AS link (name, parent)
JOIN datasets_outputfile AS output
ON output.stage_id = %s AND output.key = %s AND output.name = link.name
"""


def _delete_files(stage: Stage, key: str, names: list[str] | None) -> tuple[int, CountingSums]:
    """Delete the files of a reporter, or only the files with these names.

    Return how many there were, and the sums of those counting.
    """
    parameters: dict[str, Any] = {"stage": stage.pk, "key": key, "names": names}
    with connection.cursor() as cursor:
        cursor.execute(_DELETE_PARENTS, parameters)
        cursor.execute(_DELETE, parameters)
        deleted, files, events, size_bytes = cursor.fetchone()
    return deleted, CountingSums(files, int(events), int(size_bytes))


def _insert_files(stage: Stage, files: Sequence[NamedFile], columns: Mapping[str, Any]) -> None:
    """Store new files; `columns` are the values that all of them have."""
    parameters: dict[str, Any] = {
        **columns,
        "stage": stage.pk,
        "names": [file.name for file in files],
        "sizes": [file.size_bytes for file in files],
        "events": [file.events for file in files],
        "runs": [file.run for file in files],
        "checksums": [file.checksum.lower() for file in files],
    }
    with connection.cursor() as cursor:
        cursor.execute(_INSERT, parameters)


def _insert_parents(
    stage: Stage, key: str, files: Sequence[NamedFile], parents: Mapping[str, int]
) -> None:
    """Store the parents of new files, by primary key of the input file."""
    names = []
    keys = []
    for file in files:
        for parent in file.parents:
            names.append(file.name)
            keys.append(parents[parent])
    if names:
        with connection.cursor() as cursor:
            cursor.execute(_INSERT_PARENTS, [names, keys, stage.pk, key])
