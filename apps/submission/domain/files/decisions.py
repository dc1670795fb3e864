"""Give up input files that no job will process, and take them back."""

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from apps.accounts.models import User
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed
from apps.datasets.domain.ledger import give_up_files, lock_ledger, take_back_files
from apps.datasets.domain.merging import pass_on_outputs
from apps.datasets.enums import NOT_IN_A_JOB, FileState
from apps.datasets.models import InputFile
from apps.production.domain.actors import may
from apps.production.domain.lineage.dataset_parts import recovery_of
from apps.production.domain.reasons import checked_reason
from apps.production.enums import Actor, RequestState
from apps.production.models import Request, Stage
from apps.submission.domain.arrays.files import follow_numbers, merge_sources, stages_by_job
from apps.submission.domain.arrays.plan import lock_request

#: Files that one action changes at most.
MOST_FILES = 10_000
#: In these states it is decided which files count.
DECIDABLE = frozenset({RequestState.RUNNING, RequestState.ON_HOLD, RequestState.COMPLETING})


def may_decide(user: User, request: Request) -> bool:
    """Return whether a user may give up files of a request."""
    return may(user, Actor.LIAISON, request) or may(user, Actor.OPERATOR, request)


def check_may_decide(user: User, request: Request) -> None:
    """Raise `NotAllowed` if a user may not decide on the files of a request."""
    if not may_decide(user, request):
        raise NotAllowed(
            f"Only liaisons of {request.experiment}, approvers and shifters can decide on files."
        )


@transaction.atomic
def give_up(
    *, request: Request, position: int, names: Sequence[str], by: User, at: datetime, reason: str
) -> int:
    """Give up waiting and failed files of a stage, or all of them without names; return how many.

    Raises `NotAllowed`, `InvalidFields` for a missing reason or files that cannot be given up,
    `InvalidTransition`.
    """
    reason = checked_reason(reason)
    request, stage = _stage_to_decide(request, position, by)
    names = _checked_names(stage, names, NOT_IN_A_JOB, "no longer waiting or failed")
    later = [other for other in stages_by_job(request) if other.position > stage.position]
    files = give_up_files(
        stage=stage, later=later, names=names, reason=reason, by=by.username, at=at
    )
    _publish("submission.files_given_up", request, stage, files=files, by=by, at=at, reason=reason)
    return files


@transaction.atomic
def take_back(
    *, request: Request, position: int, names: Sequence[str], by: User, at: datetime, reason: str
) -> int:
    """Let files that were given up wait for a job again, or all of them without names.

    Return how many. Raises as `give_up` does; no reason is needed.
    """
    reason = checked_reason(reason, needed=False)
    request, stage = _stage_to_decide(request, position, by)
    names = _checked_names(stage, names, {FileState.GIVEN_UP}, "not given up")
    taken_over = recovery_of(request, names)
    if taken_over is not None:
        name, recovery = taken_over
        raise InvalidFields({"files": [f"{name} is processed by {recovery}. Cancel that first."]})
    stages = [stage]
    stages += [other for other in stages_by_job(request) if other.position > stage.position]
    source = merge_sources(request).get(position)
    if source is not None:  # before the ledger of this stage is locked, as when jobs end
        lock_ledger(source)
    files = take_back_files(stages=stages, names=names, by=by.username, at=at)
    for other in stages:
        numbers = set(
            InputFile.objects.filter(stage=other, name__in=names).values_list("number", flat=True)
        )
        follow_numbers(other, {number for number in numbers if number is not None}, at=at)
    if source is not None:
        _drop_uncounted(source, stage, names, at)
    _publish(
        "submission.files_taken_back", request, stage, files=files, by=by, at=at, reason=reason
    )
    return files


def _drop_uncounted(source: Stage, stage: Stage, names: Sequence[str], at: datetime) -> None:
    """Take files that stopped to count while they were given up off the list of a merge stage."""
    rows = InputFile.objects.filter(stage=stage, name__in=names, source_number__isnull=False)
    numbers = set(rows.values_list("source_number", flat=True))
    pass_on_outputs(source, {number for number in numbers if number is not None}, at=at)


@transaction.atomic
def count_result(
    *, request: Request, position: int, file: int, job: int, by: User, at: datetime, reason: str
) -> InputFile:
    """Let another job count for a file that was done twice, and for all files of that job.

    `file` and `job` are primary keys. Raises `NotAllowed`, `InvalidFields`, `InvalidTransition`.
    """
    reason = checked_reason(reason, needed=False)
    request, stage = _stage_to_decide(request, position, by)
    file_row = InputFile.objects.filter(stage=stage, pk=file, is_doubled=True).first()
    if file_row is None or file_row.number is None:
        raise InvalidFields({"file": ["This file was not done twice."]})
    if not file_row.repeated_results.filter(job_key=job).exists():
        raise InvalidFields(
            {"job": ["This job did not complete with the file, or counts already."]}
        )
    InputFile.objects.filter(stage=stage, number=file_row.number).update(job_key=job)
    follow_numbers(stage, {file_row.number}, at=at)
    data = {"file": file_row.name[:200], "stage": stage.name}
    publish(kind="submission.result_chosen", target=request, by=by, at=at, reason=reason, data=data)
    return file_row


def _stage_to_decide(request: Request, position: int, by: User) -> tuple[Request, Stage]:
    check_may_decide(by, request)
    request = lock_request(request)
    if request.state not in DECIDABLE:
        raise InvalidTransition(
            f"{request} is “{request.get_state_display()}”: its files are not decided on."
        )
    stages = [stage for stage in request.stages.all() if stage.position == position]
    if not stages:
        raise InvalidTransition(f"{request} has no such stage.")
    stages[0].request = request
    return request, stages[0]


def _checked_names(
    stage: Stage, names: Sequence[str], states: frozenset[FileState] | set[FileState], fault: str
) -> list[str]:
    """Return the names of files in these states: only these `names`, or all if it is empty."""
    rows = InputFile.objects.filter(stage=stage, state__in=states).order_by("pk")
    if not names:
        chosen = list(rows.values_list("name", flat=True)[: MOST_FILES + 1])
    else:
        chosen = list(rows.filter(name__in=names[: MOST_FILES + 1]).values_list("name", flat=True))
        missing = sorted(set(names) - set(chosen))
        if missing:
            raise InvalidFields({"files": [f"{missing[0]} is {fault}."]})
    if not chosen:
        raise InvalidFields({"files": ["There are no such files."]})
    if len(chosen) > MOST_FILES:
        raise InvalidFields({"files": [f"Choose at most {MOST_FILES:,} files at a time."]})
    return chosen


def _publish(
    kind: str,
    request: Request,
    stage: Stage,
    *,
    files: int,
    by: User,
    at: datetime,
    reason: str,
) -> None:
    data = {"files": files, "stage": stage.name}
    publish(kind=kind, target=request, by=by, at=at, reason=reason, data=data)
