"""The output files of jobs: find the job that reports them, and store them."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

from django.db import transaction

from apps.accounts.models import User
from apps.core.errors import InvalidFields
from apps.datasets.domain.ledger import has_ledger
from apps.datasets.domain.output_files import NamedFile, StoredFiles, store_output_files
from apps.production.domain.outputs.counts import report_output
from apps.production.models import OutputReport, Stage
from apps.submission.domain.arrays.submissions import index_of
from apps.submission.enums import Purpose
from apps.submission.models import Submission

#: The ID of a job of an array, such as 4711_3.
_JOB_ID = re.compile(r"[0-9]{1,30}_[0-9]{1,9}", re.ASCII)


def store_files(
    *, stage: Stage, key: str, files: Sequence[NamedFile], by: str, at: datetime
) -> StoredFiles:
    """Store the files of one reporter. Reporting with the same key again replaces them.

    In a stage with a ledger the key must be the ID of a job, because the files count only once
    accounting knows that this job completed. Raises `InvalidFields` with every fault.
    """
    number = None
    problems = {}
    array = array_with_job(stage, key)
    if array is not None and array.purpose != Purpose.PRODUCTION:
        problems["key"] = ["This is the job of a test or of a debug re-run: its files never count."]
    elif array is not None:
        number = index_of(array, key)
    elif not _JOB_ID.fullmatch(key) and has_ledger(stage):
        message = "Enter the ID of the job, such as 4711_3: files count once it has completed."
        problems["key"] = [message]
    return store_output_files(
        stage=stage, key=key, number=number, files=files, by=by, at=at, problems=problems
    )


@transaction.atomic
def report_output_with_files(
    *,
    stage: Stage,
    key: str,
    counts: Mapping[str, int | None],
    files: Sequence[NamedFile] | None,
    by: User,
    at: datetime,
) -> tuple[OutputReport, bool]:
    """Store the counts and the files of one job. Return the report and whether its key is new.

    Without files only the counts are stored. Counts that are omitted follow from the files. Raises
    what `report_output` and `store_files` do, and `InvalidFields` for counts that contradict the
    files: with every fault.
    """
    if files is None:
        return report_output(stage=stage, key=key, counts=counts, by=by, at=at)

    completed_counts, problems = _count_files(counts, files)
    result = None
    try:
        result = report_output(stage=stage, key=key, counts=completed_counts, by=by, at=at)
    except InvalidFields as error:
        problems |= error.problems
    try:
        store_files(stage=stage, key=key.strip(), files=files, by=by.username, at=at)
    except InvalidFields as error:
        problems |= error.problems
    if problems or result is None:
        raise InvalidFields(problems)
    return result


def _count_files(
    counts: Mapping[str, int | None], files: Sequence[NamedFile]
) -> tuple[dict[str, int | None], dict[str, list[str]]]:
    """Return counts completed by those of the files, and the contradictions by field.

    The events are known if they are of all files. If they are of some, there are at least as many.
    """
    events = 0
    are_events_known = True
    for file in files:
        events += file.events or 0
        are_events_known = are_events_known and file.events is not None

    completed = dict(counts)
    problems = {}
    files_out = counts.get("files_out")
    if files_out is None:
        completed["files_out"] = len(files)
    elif files_out != len(files):
        problems["files_out"] = [f"The list has {len(files):,} files."]
    events_out = counts.get("events_out")
    if events_out is None:
        completed["events_out"] = events if are_events_known else None
    elif events_out < events or (are_events_known and events_out != events):
        problems["events_out"] = [f"The listed files have {events:,} events."]
    return completed, problems


def array_with_job(stage: Stage, job_id: str) -> Submission | None:
    """Return the array of a stage that has the job of this ID; the newest if IDs are recycled."""
    if not _JOB_ID.fullmatch(job_id):
        return None
    arrays = Submission.objects.filter(
        request=stage.request_id,
        position=stage.position,
        spool_id=job_id.partition("_")[0],
    )
    for array in arrays.defer("script").order_by("-pk"):
        if index_of(array, job_id) is not None:
            return array
    return None
