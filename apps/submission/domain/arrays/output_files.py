"""The output files of jobs: find the job that reports them, and store them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from apps.accounts.models import User
from apps.clusters.schedulers.base import JobState
from apps.core.domain.quotas import DAY, Quota
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed
from apps.datasets.domain.ledger import has_ledger
from apps.datasets.domain.output_files import NamedFile, StoredFiles, store_output_files
from apps.datasets.models import FileTotals, OutputFile
from apps.jobs.domain.phases.reports import array_of, check_token
from apps.jobs.domain.phases.tokens import PhaseToken
from apps.jobs.enums import stage_of_request
from apps.jobs.models import Job
from apps.production.domain.outputs.counts import REPORTABLE, report_output
from apps.production.domain.work_start import record_work_start
from apps.production.models import OutputReport, Stage
from apps.submission.domain.arrays.files import follow_numbers
from apps.submission.domain.arrays.submissions import index_of, jobs_of
from apps.submission.enums import Purpose
from apps.submission.models import Submission

#: Maximum new files per day of the jobs of an experiment, over all tokens.
FILES_A_DAY = 2_000_000
#: The ID of a job of an array, such as 4711_3.
_JOB_ID = re.compile(r"[0-9]{1,30}_[0-9]{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class JobFiles:
    """How many files of a job were stored, and whether they count now; `note` says why not."""

    stored: int
    counts: bool
    note: str = ""


def store_files(
    *,
    stage: Stage,
    key: str,
    files: Sequence[NamedFile],
    by: str,
    at: datetime,
    replaces: bool = True,
    cluster_id: int | None = None,
) -> StoredFiles:
    """Store the files of one reporter, as `store_output_files`.

    In a stage with a ledger the key must be the ID of a job, because the files count only once
    accounting knows that this job completed. Raises `InvalidFields` with every fault.
    """
    number = None
    problems = {}
    array = array_with_job(stage, key, cluster_id=cluster_id)
    if array is not None and array.purpose != Purpose.PRODUCTION:
        problems["key"] = ["This is the job of a test or of a debug re-run: its files never count."]
    elif array is not None:
        number = index_of(array, key)
    elif not _JOB_ID.fullmatch(key) and has_ledger(stage):
        message = "Enter the ID of the job, such as 4711_3: files count once it has completed."
        problems["key"] = [message]
    stored = store_output_files(
        stage=stage,
        key=key,
        number=number,
        files=files,
        by=by,
        at=at,
        replaces=replaces,
        problems=problems,
    )
    if array is not None:
        stored = _count_late_report(stage, array, key, stored, at=at)
    return stored


def _count_late_report(
    stage: Stage, array: Submission, key: str, stored: StoredFiles, *, at: datetime
) -> StoredFiles:
    """Count files of a job that completed before its report, in a stage without input files.

    Such a stage has a ledger if its files are merged. Elsewhere its input files tell which job
    counts.
    """
    number = index_of(array, key)
    if stored.counts or number is None:
        return stored
    if not FileTotals.objects.filter(stage=stage, files=0, source=None).exists():
        return stored
    if Job.objects.filter(pk__in=jobs_of(array), job_id=key, state=JobState.COMPLETED).exists():
        follow_numbers(stage, {number}, at=at)
    counts = OutputFile.objects.filter(stage=stage, key=key, counts=True).exists()
    return replace(stored, counts=counts)


@transaction.atomic
def report_job_files(
    *,
    token: PhaseToken,
    job_id: str,
    files: Sequence[NamedFile],
    at: datetime,
    replaces: bool = False,
) -> JobFiles:
    """Store files that a job itself reports, in the stage that its token names.

    They are added to those that it reported before, or replace all of them. Those of tests and
    debug re-runs are not stored. Raises `NotAllowed` if the token belongs to another array or names
    no stage, `InvalidTransition` if the request has no jobs in its state, `InvalidFields` with
    every fault, and `LimitReached` if the jobs of the experiment reported too many files today.
    """
    quota = Quota("output-files", FILES_A_DAY, DAY)
    if quota.add(token.experiment_id, 0, at=at) >= quota.most:
        raise quota.refusal(
            f"The jobs of this experiment have reported {quota.most:,} files today.", at=at
        )
    array = _array_of_token(token)
    if array is None:
        check_token(token, job_id)
    elif array.spool_id and array_of(job_id) != array_of(array.spool_id):
        raise NotAllowed("This token is in use by another job array. Each needs its own.")
    if _is_outside_production(token, array):
        return JobFiles(0, counts=False, note="Files of tests and debug re-runs are not stored.")

    stage = _stage_of_token(token, array)
    if stage.request.state not in REPORTABLE:
        raise InvalidTransition(
            f"{stage.request} is “{stage.request.get_state_display()}”. "
            "Its jobs cannot report in this state."
        )
    record_work_start(request_pks=[stage.request_id], at=at)
    values: dict[str, Any] = {
        "stage": stage,
        "key": job_id,
        "files": files,
        "at": at,
        "replaces": replaces,
    }
    values["by"] = f"job {job_id}"
    try:
        if array is None:
            stored = store_files(cluster_id=token.cluster_id, **values)
        else:
            number = index_of(array, job_id)
            if number is None and has_ledger(stage):
                raise InvalidFields({"job_id": ["The array of this token has no such job."]})
            stored = store_output_files(number=number, **values)
            stored = _count_late_report(stage, array, job_id, stored, at=at)
    except InvalidFields as error:
        problems = dict(error.problems)
        if "key" in problems:
            problems["job_id"] = problems.pop("key")
        raise InvalidFields(problems) from None
    transaction.on_commit(lambda: quota.add(token.experiment_id, stored.new, at=at))
    return JobFiles(stored.stored, stored.counts)


def _array_of_token(token: PhaseToken) -> Submission | None:
    """Return the array for which the portal made a token; None for a token of a user."""
    try:
        label = UUID(hex=token.label)
    except ValueError:
        return None
    return Submission.objects.filter(token=label).defer("script").first()


def _is_outside_production(token: PhaseToken, array: Submission | None) -> bool:
    if array is not None:
        return array.purpose != Purpose.PRODUCTION
    return token.stage != stage_of_request(token.stage)


def _stage_of_token(token: PhaseToken, array: Submission | None) -> Stage:
    """Return the stage of a token, with its request. Raises `NotAllowed` without one."""
    stages = Stage.objects.select_related("request")
    if array is not None:
        stages = stages.filter(request=array.request_id, position=array.position)
    else:
        stages = stages.filter(
            request__key=token.request_key,
            request__experiment=token.experiment_id,
            name__iexact=token.stage,
        )
    stage = stages.order_by("position").first()
    if stage is None:
        raise NotAllowed("This token names no stage of a request. Create one that does.")
    return stage


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
    """Return counts completed by the counts of the files, and the contradictions by field.

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


def array_with_job(
    stage: Stage, job_id: str, *, cluster_id: int | None = None
) -> Submission | None:
    """Return the array of a stage that has the job of this ID; the newest if IDs are recycled."""
    if not _JOB_ID.fullmatch(job_id):
        return None
    arrays = Submission.objects.filter(
        request=stage.request_id,
        position=stage.position,
        spool_id=job_id.partition("_")[0],
    )
    if cluster_id is not None:
        arrays = arrays.filter(cluster=cluster_id)
    for array in arrays.defer("script").order_by("-pk"):
        if index_of(array, job_id) is not None:
            return array
    return None
