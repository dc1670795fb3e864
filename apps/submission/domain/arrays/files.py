"""The input files of jobs: list them, divide them among jobs, and store the jobs' outcomes."""

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet

from apps.clusters.schedulers.base import JobState
from apps.core.errors import InvalidFields
from apps.datasets.domain.ledger import (
    EndedJob,
    NewFile,
    NumberOutcome,
    add_files,
    correct_totals,
    has_ledger,
    lock_ledger,
    record_outcomes,
)
from apps.datasets.domain.merging import pass_on_outputs
from apps.datasets.models import InputFile
from apps.jobs.models import Job
from apps.production.domain.checks.rules.chain import source_positions
from apps.production.domain.content.stages import content_of
from apps.production.domain.lineage.dataset_parts import held_files
from apps.production.domain.outputs.datasets import (
    NO_LIST,
    CatalogueError,
    DataFile,
    ListsFiles,
    catalogue_of,
)
from apps.production.domain.types.versions import workflow_of
from apps.production.enums import RequestState
from apps.production.models import Request, Stage
from apps.submission.domain.arrays.submissions import (
    index_of,
    indices_of,
    jobs_of,
    read_ranges,
)
from apps.submission.enums import Purpose, SubmissionState
from apps.submission.models import Assignment, Submission

log = logging.getLogger(__name__)

#: Jobs in these states may be restarted by the scheduler.
_MAY_COME_BACK = {JobState.PREEMPTED, JobState.NODE_FAIL, JobState.BOOT_FAIL}
_COMES_BACK_WITHIN = timedelta(minutes=15)
#: Arrays of requests in these states that are not in a scheduler never get there.
_CLOSED = frozenset(
    {
        RequestState.CANCELLED,
        RequestState.SUPERSEDED,
        RequestState.DONE,
        RequestState.DONE_PARTIAL,
    }
)
#: How long the catalogue is left alone after it could not list the files of a dataset.
LISTING_PAUSE = timedelta(minutes=5)
#: Jobs submitted later than this after the end of an array are not of that array.
RECYCLED_AFTER = timedelta(days=1)
#: How often a ledger that may change is compared with the jobs.
CHECKED_EVERY = timedelta(hours=1)
Result = TypeVar("Result")
_NOT_SUBMITTED = frozenset({SubmissionState.PLANNED, SubmissionState.FAILED})
NOTHING_TO_MERGE = "A merge stage reads the output of an earlier stage of its request."
#: More than an array ever has.
_MOST_TASKS = 10_000_000


def takes_files(request: Request) -> bool:
    """Return whether the jobs of a request are made of files as they arrive."""
    return workflow_of(request.workflow).takes_files


def stages_with_files(request: Request) -> list[Stage]:
    """Return the stages whose input files the portal assigns to jobs.

    These are all stages of keep-up processing; of other requests those with `{files}` in their
    command that read a dataset which the request does not make itself. Scans have none.
    """
    stages = list(request.stages.all())
    workflow = workflow_of(request.workflow)
    if workflow.takes_files:
        return stages_by_job(request)
    if request.scan.strip():
        return []
    outputs = {stage.output_dataset for stage in stages} - {""}
    readers = []
    for stage in stages:
        is_from_outside = stage.input_dataset and stage.input_dataset not in outputs
        declared = workflow.stage(stage.kind)
        if is_from_outside and declared.reads_files and not declared.merges:
            readers.append(stage)
    return readers


def stages_by_job(request: Request) -> list[Stage]:
    """Return the stages of a request that merge no files."""
    workflow = workflow_of(request.workflow)
    return [stage for stage in request.stages.all() if not workflow.stage(stage.kind).merges]


def merge_sources(request: Request) -> dict[int, Stage]:
    """Return the earlier stage whose output files each merge stage reads, by position.

    Merge stages that read something else are left out.
    """
    stages = list(request.stages.all())
    if len(stages_by_job(request)) == len(stages):
        return {}
    workflow = workflow_of(request.workflow)
    sources_by_position = {}
    for position, source in enumerate(source_positions(content_of(request, services=False))):
        if source is not None and workflow.stage(stages[position].kind).merges:
            sources_by_position[position] = stages[source]
    return sources_by_position


def list_files(stage: Stage) -> list[DataFile]:
    """Return the files of the input dataset, without names that are unusable in commands.

    Asks the catalogue now: not for pages. Raises `InvalidFields` if the files cannot be listed.
    """
    dataset = stage.input_dataset
    held = held_files(stage.request, dataset)
    if held is not None:
        return [DataFile(name) for name in held]
    try:
        catalogue: object = catalogue_of(settings.DATASET_CATALOGUE)
        if not isinstance(catalogue, ListsFiles):
            raise CatalogueError(NO_LIST)
        files = catalogue.files_of(dataset)
    except CatalogueError as error:
        field = f"stages.{stage.position}.input_dataset"
        raise InvalidFields({field: [f"The files cannot be listed. {error}"]}) from error
    usable = []
    for file in files:
        if not file.name.startswith("-") and file.name.isprintable() and file.name:
            usable.append(file)
    if len(usable) < len(files):
        log.warning(
            "%s: %d files of %s have names that cannot be used",
            stage.request,
            len(files) - len(usable),
            dataset,
        )
    return usable


class NotListed(Exception):
    """The list of files of a stage is needed, but was not read before the request was locked."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(str(stage))
        self.stage = stage


class Listing:
    """The files of datasets as a catalogue listed them, by stage, or why it could not."""

    def __init__(self) -> None:
        self._answers: dict[int, list[DataFile] | InvalidFields] = {}

    def ask(self, stage: Stage) -> None:
        """Ask the catalogue for the files of a stage. The caller has locked nothing."""
        try:
            self._answers[stage.pk] = list_files(stage)
        except InvalidFields as error:
            self._answers[stage.pk] = error

    def files_of(self, stage: Stage) -> list[DataFile]:
        """Return the files of a stage. Raises `NotListed`, and `InvalidFields` as `list_files`."""
        answer = self._answers.get(stage.pk)
        if answer is None:
            raise NotListed(stage)
        if isinstance(answer, InvalidFields):
            raise answer
        return answer


def with_listing(act: Callable[[Listing], Result]) -> Result:
    """Call a function that locks a request, again after each list of files that it needs.

    A catalogue may take minutes to answer: it is asked between the calls, when nothing is locked.
    """
    listing = Listing()
    while True:
        try:
            return act(listing)
        except NotListed as needed:
            listing.ask(needed.stage)


def check_merges(request: Request) -> None:
    """Raise `InvalidFields` if a merge stage has nothing to merge."""
    merge_positions = merge_sources(request)
    by_job = {stage.position for stage in stages_by_job(request)}
    for stage in request.stages.all():
        if stage.position not in by_job and stage.position not in merge_positions:
            field = f"stages.{stage.position}.input_dataset"
            raise InvalidFields({field: [NOTHING_TO_MERGE]})


def check_files(request: Request) -> None:
    """Raise `InvalidFields` if the files of a stage cannot be listed, divided or merged.

    Asks the catalogue now: not for pages.
    """
    check_merges(request)
    if takes_files(request):
        list_files(request.stages.all()[0])
        return
    for stage in stages_with_files(request):
        if not has_ledger(stage):
            divide_files(list_files(stage), stage)


def is_ready_to_start(
    assignment: Assignment, stage: Stage, listing: Listing, *, at: datetime
) -> bool:
    """Divide the files of the input dataset among the jobs of a stage, if that is still to be done.

    Return False while the files cannot be listed or divided. Raises `NotListed`.
    """
    request = assignment.request
    if takes_files(request) or stage not in stages_with_files(request) or has_ledger(stage):
        return True
    with noting_faults(assignment, at=at) as asks:
        if asks:
            start_ledger(stage, listing.files_of(stage), at=at)
            return True
    return False


def start_ledger(stage: Stage, files: Sequence[DataFile], *, at: datetime) -> None:
    """Divide the files of the input dataset among the jobs of a stage.

    Files that are added to the dataset later are not part of the request. Raises `InvalidFields`.
    """
    add_files(stages=[stage], files=divide_files(files, stage), at=at)


@contextmanager
def noting_faults(assignment: Assignment, *, at: datetime) -> Iterator[bool]:
    """Store why files cannot be listed, and until when the catalogue is not queried after that.

    Yields whether it may be asked now. Jobs of files that are known continue meanwhile.
    """
    tried_at = assignment.listing_tried_at
    if assignment.listing_error and tried_at and at < tried_at + LISTING_PAUSE:
        yield False
        return
    changes: dict[str, Any] = {
        "listing_error": "",
        "listing_failed_since": None,
        "listing_tried_at": None,
    }
    try:
        yield True
    except InvalidFields as error:
        messages: list[str] = []
        for messages_of_field in error.problems.values():
            messages += messages_of_field
        log.warning("%s: %s", assignment.request, error)
        changes = {
            "listing_error": " ".join(messages)[:2000],
            "listing_failed_since": assignment.listing_failed_since or at,
            "listing_tried_at": at,
        }
    if changes["listing_error"] or assignment.listing_error:
        Assignment.objects.filter(pk=assignment.pk).update(**changes)
        for name, value in changes.items():
            setattr(assignment, name, value)


def divide_files(files: Sequence[DataFile], stage: Stage) -> list[NewFile]:
    """Return the files with the numbers of their jobs: neighbours together, as evenly as possible.

    Raises `InvalidFields` if there are fewer files than jobs.
    """
    jobs = stage.jobs or 0
    if not jobs or len(files) < jobs:
        field = f"stages.{stage.position}.jobs"
        message = f"{stage.input_dataset} has {len(files):,} files, too few for {jobs:,} jobs."
        raise InvalidFields({field: [message]})
    divided = []
    for place, file in enumerate(files):
        divided.append(new_file(file, number=place * jobs // len(files)))
    return divided


def new_file(file: DataFile, *, number: int | None = None) -> NewFile:
    """Return a file of a catalogue as a file of a ledger."""
    return NewFile(file.name, file.run, file.events, file.size_bytes, number)


def ended_jobs(
    submission: Submission, *, at: datetime
) -> tuple[dict[int, EndedJob], dict[int, EndedJob]]:
    """Return the completed and the failed jobs of an array, by number.

    A job that its scheduler may restart has not ended yet.
    """
    completed: dict[int, EndedJob] = {}
    failed: dict[int, EndedJob] = {}
    jobs = jobs_of(submission)
    if submission.settled_at is not None:  # IDs are recycled, and an ended array is read again
        jobs = jobs.filter(submitted_at__lte=submission.settled_at + RECYCLED_AFTER)
    for key, job_id, state, ended_at in jobs.values_list("pk", "job_id", "state", "ended_at"):
        number = index_of(submission, job_id)
        comes_back = state in _MAY_COME_BACK and at - ended_at < _COMES_BACK_WITHIN
        if number is None or state == JobState.REQUEUED or comes_back:
            continue
        ended = completed if state == JobState.COMPLETED else failed
        ended[number] = EndedJob(key, job_id)
    return completed, failed


def follow_jobs(submission: Submission, *, at: datetime) -> None:
    """Bring the ledger of its stage up to date with the jobs of a production array."""
    if submission.purpose != Purpose.PRODUCTION:
        return
    stage = submission.request.stages.filter(position=submission.position).first()
    if stage is not None and has_ledger(stage):
        follow_numbers(stage, set(indices_of(submission)), at=at)


@transaction.atomic
def follow_numbers(stage: Stage, numbers: Collection[int], *, at: datetime) -> None:
    """Bring the files of these numbers up to date with the jobs in all arrays of their stage.

    A stage without a ledger has none.
    """
    # The lock comes before the jobs are read: else an older state may be stored after a newer one.
    if lock_ledger(stage) is None:
        return
    record_outcomes(stage=stage, outcomes=outcomes_of(stage, numbers, at=at), at=at)
    pass_on_outputs(stage, numbers, at=at)


def outcomes_of(stage: Stage, numbers: Iterable[int], *, at: datetime) -> dict[int, NumberOutcome]:
    """Return the outcomes of the jobs of these numbers in all production arrays of their stage.

    The rows of old jobs are moved to files; their outcomes are known from their arrays.
    """
    outcomes = {number: NumberOutcome() for number in numbers}
    if not outcomes:
        return outcomes
    for submission in _arrays_with(stage, min(outcomes), max(outcomes)):
        mine = outcomes.keys() & set(indices_of(submission))
        if not mine:
            continue
        completed, failed = ended_jobs(submission, at=at)
        never_ends = _never_ends(submission)
        unknown = mine - completed.keys() - failed.keys()
        if submission.settled_at is not None and unknown:
            completed_before, failed_before = _moved_jobs(submission, stage, unknown)
            completed |= completed_before
            failed |= failed_before
        for number in mine:
            outcome = outcomes[number]
            if number in completed:
                outcome.completed.append(completed[number])
            elif number in failed:
                outcome.failed.append(failed[number])
            elif not never_ends:
                outcome.is_taken = True
    return outcomes


def _moved_jobs(
    submission: Submission, stage: Stage, numbers: Collection[int]
) -> tuple[dict[int, EndedJob], dict[int, EndedJob]]:
    """Return the completed and the failed jobs of an ended array whose rows were moved to files.

    The ledger knows the primary keys of those that count; the others have negative ones here.
    """
    with_row = set()
    for job_id in jobs_of(submission).values_list("job_id", flat=True):
        with_row.add(index_of(submission, job_id))
    moved = set(numbers) - with_row
    ended = InputFile.objects.filter(stage=stage, number__in=moved, job_key__isnull=False)
    key_of_number = dict(ended.values_list("number", "job_key"))
    # The ledger may name a job of another array, whose row is there.
    with_this_key = Job.objects.filter(pk__in=list(key_of_number.values()))
    existing = set(with_this_key.values_list("pk", flat=True))
    failed_numbers = set(read_ranges(submission.failed_indices))
    completed: dict[int, EndedJob] = {}
    failed: dict[int, EndedJob] = {}
    for task, number in enumerate(indices_of(submission)):
        if number not in moved:
            continue
        key = key_of_number.get(number)
        if key is None or key in existing:
            key = -(submission.pk * _MOST_TASKS + task)
        job = EndedJob(key, f"{submission.spool_id}_{task}")
        if number in failed_numbers:
            failed[number] = job
        else:
            completed[number] = job
    return completed, failed


def _arrays_with(stage: Stage, lowest: int, highest: int) -> Iterable[Submission]:
    """Return the production arrays that may have a number from `lowest` to `highest`, in order."""
    arrays = Submission.objects.filter(
        request=stage.request_id,
        position=stage.position,
        purpose=Purpose.PRODUCTION,
        first__lte=highest,
    )
    arrays = arrays.select_related("request", "cluster").defer("script").order_by("number")
    for submission in arrays:
        if submission.indices or submission.first + submission.tasks > lowest:
            yield submission


def _never_ends(submission: Submission) -> bool:
    """Whether unfinished jobs of an array will never end, because it is in no scheduler."""
    return submission.state in _NOT_SUBMITTED and submission.request.state in _CLOSED


def ledgers_to_check(at: datetime) -> QuerySet[Stage]:
    """Return the stages whose ledger is to be compared with their jobs, longest unchecked first.

    These are those never compared, and those with jobs under way or of running requests.
    """
    never = Q(file_totals__checked_at=None)
    may_change = Q(file_totals__taken__gt=0) | Q(request__state=RequestState.RUNNING)
    stages = Stage.objects.filter(file_totals__isnull=False).filter(
        never | (may_change & Q(file_totals__checked_at__lt=at - CHECKED_EVERY))
    )
    return stages.select_related("request").order_by(
        F("file_totals__checked_at").asc(nulls_first=True), "pk"
    )


def check_ledger(stage: Stage, *, at: datetime) -> bool:
    """Bring the ledger of a stage up to date with all of its arrays; return whether it balanced.

    Totals that differ from a recount are corrected and logged.
    """
    # Wrong totals come first: files cannot move out of a total that would fall below zero.
    differences = correct_totals(stage, at=at)
    for column, (stored, counted) in sorted(differences.items()):
        log.error("%s, %s: %s is %d, counted %d", stage.request, stage, column, stored, counted)
    numbers_by_array: dict[int, set[int]] = defaultdict(set)
    for submission in _arrays_with(stage, 0, 2**31 - 1):
        if submission.retry_of_id is None:
            numbers_by_array[submission.pk].update(indices_of(submission))
    for numbers in numbers_by_array.values():
        follow_numbers(stage, numbers, at=at)
    return not differences
