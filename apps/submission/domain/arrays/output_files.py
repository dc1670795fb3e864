"""The output files of jobs: find the job that reports them, and store them."""

import re
from collections.abc import Sequence
from datetime import datetime

from apps.datasets.domain.ledger import has_ledger
from apps.datasets.domain.output_files import (
    NamedFile,
    StoredFiles,
    store_output_files,
)
from apps.production.models import Stage
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
