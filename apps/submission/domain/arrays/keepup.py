"""Keep-up: new files are grouped into jobs, each file once, until the stop date."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.utils import timezone

from apps.core.domain.quantities import format_duration
from apps.core.errors import InvalidFields
from apps.production.domain.outputs.datasets import (
    NO_LIST,
    CatalogueError,
    DataFile,
    ListsFiles,
    catalogue_of,
)
from apps.production.domain.types.versions import workflow_of
from apps.production.models import Request
from apps.submission.models import Assignment, TakenFile

log = logging.getLogger(__name__)

PER_RUN = "per run"
PER_N = "per N files"


def takes_files(request: Request) -> bool:
    """Return whether the jobs of a request are made of files as they arrive."""
    return workflow_of(request.workflow).takes_files


def is_over(request: Request, at: datetime) -> bool:
    """Return whether the stop date has passed."""
    stop_on = request.arguments.get("stop_on")
    return isinstance(stop_on, str) and stop_on < timezone.localdate(at).isoformat()


def take_new_files(assignment: Assignment, *, first: int, most: int, at: datetime) -> int:
    """Group new files into at most `most` jobs from number `first` on, if the interval is over.

    Return the number of jobs. Fails as a whole if a file is already taken. Raises `InvalidFields`
    if the files cannot be listed.
    """
    request = assignment.request
    cadence = _cadence(request)
    is_due = assignment.looked_at is None or assignment.looked_at + cadence <= at
    if is_over(request, at) or not is_due:
        return 0

    taken = set(TakenFile.objects.filter(request=request).values_list("name", flat=True))
    files = [file for file in listed_files(request) if file.name not in taken]
    groups = _cut(files, request.arguments, last=is_over(request, at + cadence))
    newly_taken: list[TakenFile] = []
    for job, names in enumerate(groups[:most], start=first):
        newly_taken.extend(
            TakenFile(request=request, name=name, job=job, taken_at=at) for name in names
        )
    TakenFile.objects.bulk_create(newly_taken)

    if len(groups) <= most:
        Assignment.objects.filter(pk=assignment.pk).update(looked_at=at)
        assignment.looked_at = at
    return min(len(groups), most)


def _cadence(request: Request) -> timedelta:
    return timedelta(seconds=int(request.arguments.get("cadence") or 3600))


def files_of_jobs(request: Request, jobs: Iterable[int]) -> Mapping[int, list[str]]:
    """Return the files of these jobs, by their numbers."""
    names_by_job: dict[int, list[str]] = defaultdict(list)
    rows = TakenFile.objects.filter(request=request, job__in=list(jobs)).order_by("job", "pk")
    for job, name in rows.values_list("job", "name"):
        names_by_job[job].append(name)
    return names_by_job


def listed_files(request: Request) -> list[DataFile]:
    """Return the files in the catalogue, without names that are unusable in commands.

    Requests without keep-up have none. Raises `InvalidFields` if the files cannot be listed.
    """
    if not takes_files(request):
        return []
    first = request.stages.all()[0]
    dataset = first.input_dataset
    try:
        catalogue: object = catalogue_of(settings.DATASET_CATALOGUE)
        if not isinstance(catalogue, ListsFiles):
            raise CatalogueError(NO_LIST)
        files = catalogue.files_of(dataset)
    except CatalogueError as error:
        raise InvalidFields(
            {"stages.0.input_dataset": [f"The files cannot be listed. {error}"]}
        ) from error
    usable = []
    for file in files:
        if not file.name.startswith("-") and file.name.isprintable() and file.name:
            usable.append(file)
    if len(usable) < len(files):
        log.warning(
            "%s: %d files of %s have names that cannot be used",
            request,
            len(files) - len(usable),
            dataset,
        )
    return usable


def _cut(
    files: Sequence[DataFile], arguments: Mapping[str, object], *, last: bool
) -> list[list[str]]:
    """Group files into jobs.

    An incomplete group of N waits for more files, except on the last look.
    """
    split = arguments.get("split")
    size = arguments.get("files_per_job")
    if split == PER_RUN:
        by_run: dict[object, list[str]] = defaultdict(list)
        for file in files:
            run = file.name if file.run is None else file.run
            by_run[run].append(file.name)
        return list(by_run.values())

    if split != PER_N or not isinstance(size, int) or size <= 0:
        size = 1
    names = [file.name for file in files]
    groups = [names[first : first + size] for first in range(0, len(names), size)]
    if not last:
        groups = [group for group in groups if len(group) == size]
    return groups


def files_note(assignment: Assignment | None) -> str:
    """Return the text about files on the page; empty for other requests."""
    if assignment is None or not takes_files(assignment.request):
        return ""
    request = assignment.request
    taken = TakenFile.objects.filter(request=request).count()
    cadence = format_duration(int(_cadence(request).total_seconds()))
    return (
        f"{taken:,} files processed so far. Next look every {cadence} until "
        f"{request.arguments['stop_on']}."
    )
