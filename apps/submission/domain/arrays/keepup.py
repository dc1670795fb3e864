"""Keep-up: new files are grouped into jobs, each file once, until the stop date."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.utils import timezone

from apps.core.domain.quantities import format_duration
from apps.datasets.domain.ledger import (
    add_files,
    assign_numbers,
    totals_of,
    waiting_without_job,
)
from apps.datasets.enums import FileState
from apps.datasets.models import InputFile
from apps.production.domain.outputs.datasets import DataFile
from apps.production.models import Request, Stage
from apps.submission.domain.arrays.files import (
    Listing,
    new_file,
    noting_faults,
    stages_by_job,
    takes_files,
)
from apps.submission.domain.arrays.grouping import Grouping, group_files
from apps.submission.models import Assignment

#: Files of a catalogue that are compared with the ledger at once.
_BATCH = 5_000


def is_over(request: Request, at: datetime) -> bool:
    """Return whether the stop date has passed."""
    return request.stop_date is not None and request.stop_date < timezone.localdate(at)


def take_new_files(
    assignment: Assignment, listing: Listing, *, first: int, most: int, at: datetime
) -> int:
    """Group new files into at most `most` jobs from number `first` on, if the interval is over.

    Return the number of jobs. Raises `NotListed`. While the catalogue does not answer, these
    are of files that were listed before.
    """
    request = assignment.request
    cadence = _cadence(request)
    is_due = assignment.looked_at is None or assignment.looked_at + cadence <= at
    if not is_due:
        return 0

    stages = stages_by_job(request)
    if not is_over(request, at):  # after the stop date, only files that were found before it
        with noting_faults(assignment, at=at) as asks:
            if asks:
                _add_new_files(stages, listing.files_of(stages[0]), at)
    files = waiting_without_job(stages[0])
    groups = group_files(
        files, Grouping.of(request.arguments), at=at, last=is_over(request, at + cadence)
    )
    number_by_name = {}
    for number, group in enumerate(groups[:most], start=first):
        for file in group:
            number_by_name[file.name] = number
    assign_numbers(stages=stages, number_by_name=number_by_name)

    if len(groups) <= most and not assignment.listing_error:
        Assignment.objects.filter(pk=assignment.pk).update(looked_at=at)
        assignment.looked_at = at
    return min(len(groups), most)


def _add_new_files(stages: Sequence[Stage], files: Sequence[DataFile], at: datetime) -> None:
    """Add the files that are not known yet, in batches: a dataset may have millions."""
    for start in range(0, len(files), _BATCH):
        batch = files[start : start + _BATCH]
        names = [file.name for file in batch]
        rows = InputFile.objects.filter(stage=stages[0], name__in=names)
        known = set(rows.values_list("name", flat=True))
        new_files = []
        for file in batch:
            if file.name not in known:
                known.add(file.name)
                new_files.append(new_file(file))
        if new_files:
            add_files(stages=stages, files=new_files, at=at)


def jobs_of_files(request: Request) -> int:
    """Return how many jobs the files of a request were divided among."""
    first = request.stages.all()[0]
    files = InputFile.objects.filter(stage=first, number__isnull=False)
    return files.order_by().values("number").distinct().count()


def has_waiting_files(request: Request) -> bool:
    """Return whether files of a request are not assigned to a job yet."""
    first = request.stages.all()[0]
    waiting = InputFile.objects.filter(stage=first, number=None, state=FileState.WAITING)
    return waiting.exists()


def _cadence(request: Request) -> timedelta:
    return timedelta(seconds=int(request.arguments.get("cadence") or 3600))


def files_note(assignment: Assignment | None) -> str:
    """Return the text about files on the page; empty for other requests."""
    if assignment is None or not takes_files(assignment.request):
        return ""
    request = assignment.request
    totals = totals_of(request).get(0)
    taken = totals.files - totals.waiting if totals else 0
    cadence = format_duration(int(_cadence(request).total_seconds()))
    return (
        f"{taken:,} files processed so far. Next look every {cadence} until "
        f"{request.arguments['stop_on']}."
    )
