"""Draft a request for exactly the files of a stage that are missing."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from apps.accounts.models import User
from apps.core.domain.events import publish
from apps.core.errors import InvalidTransition, NotAllowed
from apps.datasets.domain.ledger import give_up_files, take_back_files
from apps.datasets.enums import NOT_IN_A_JOB, FileState
from apps.datasets.models import InputFile
from apps.production.domain.actors import may
from apps.production.domain.content.model import RequestContent, StageContent
from apps.production.domain.content.stages import content_of
from apps.production.domain.lineage.dataset_parts import (
    GIVEN_BACK,
    order_recovery,
    recovery_of,
)
from apps.production.domain.lineage.links import create_link
from apps.production.domain.requests.drafts import create_draft
from apps.production.enums import PORTAL, Actor, LinkKind, RequestState
from apps.production.models import DatasetPart, Request, Stage
from apps.submission.domain.arrays.files import (
    follow_numbers,
    merge_sources,
    stages_by_job,
    takes_files,
)
from apps.submission.domain.arrays.plan import lock_request
from apps.submission.domain.files.decisions import DECIDABLE

#: Files that one recovery has at most.
MOST_FILES = 100_000
#: How long a recovery of keep-up processing looks for its files at least.
KEPT_UP_FOR = timedelta(days=14)
_MOST_TITLE = 200


def may_request_missing(user: User, request: Request) -> bool:
    """Return whether a user may draft the recovery of a request."""
    return may(user, Actor.LIAISON_OR_APPROVER, request)


def check_may_request_missing(user: User, request: Request) -> None:
    """Raise `NotAllowed` if a user may not draft the recovery of a request."""
    if not may_request_missing(user, request):
        raise NotAllowed(
            f"Only liaisons of {request.experiment} and approvers can request what is missing."
        )


@transaction.atomic
def request_missing(*, request: Request, position: int, by: User, at: datetime) -> Request:
    """Draft a request for the waiting and failed files of a stage, and give them up here.

    They are given up in this request, so that they are not processed twice. The draft has this
    stage and the later ones, with jobs and events in proportion to the files. Raises `NotAllowed`,
    `InvalidTransition` if there are no such files.
    """
    check_may_request_missing(by, request)
    request = lock_request(request)
    stages = list(request.stages.all())
    if position >= len(stages):
        raise InvalidTransition(f"{request} has no such stage.")
    stage = stages[position]
    stage.request = request
    if position in merge_sources(request):
        raise InvalidTransition(
            f"{request}: {stage.name} merges files of this request. Retry its jobs instead."
        )
    names = missing_names(stage)
    if not names:
        raise InvalidTransition(f"{request}: no file of {stage.name} is waiting or failed.")
    if len(names) > MOST_FILES:
        raise InvalidTransition(f"{request}: a recovery has at most {MOST_FILES:,} files.")

    dataset = stages[0].input_dataset if takes_files(request) else stage.input_dataset
    recoveries = request.links_on.filter(kind=LinkKind.RECOVERED).count()
    name = f"{dataset}_missing_of_{_plain(request.key)}_{recoveries + 1}"
    made = create_draft(
        experiment=request.experiment,
        content=_content_for(request, stage, names, name, at),
        by=by,
        at=at,
        origin={"recovers": request.key, "files": len(names)},
        editor_ids=request.editor_ids,
    )
    note = _link_note(stage, len(names))
    create_link(LinkKind.RECOVERED, request, made, by, at, note)
    order_recovery(request=made, whole=request, name=name, dataset=dataset, files=names, at=at)
    give_up_files(
        stage=stage,
        later=[other for other in stages_by_job(request) if other.position > position],
        names=names,
        reason=_give_up_reason(made),
        by=by.username,
        at=at,
    )
    return made


def _give_up_reason(recovery: Request) -> str:
    return f"Requested in {recovery.key}."


def _link_note(stage: Stage, files: int) -> str:
    return f"{files:,} files of {stage.name}"


@transaction.atomic
def give_files_back(*, recovery: Request, at: datetime) -> int:
    """Take back the files of a recovery that processes none, in the request that it recovers.

    Files that a job of the recovery reads or has read stay given up, and those of requests whose
    files are no longer decided on. Return how many were taken back; repeating it changes nothing.
    """
    part = DatasetPart.objects.filter(request=recovery, is_held=True).first()
    if part is None or part.split_from is None or recovery.state not in GIVEN_BACK:
        return 0
    whole = lock_request(part.split_from)
    # Reopening the recovery locks the original too. Before the lock, it could still be reopened.
    recovery.refresh_from_db(fields=["state"])
    if whole.state not in DECIDABLE or recovery.state not in GIVEN_BACK:
        return 0

    names = set(part.files or ()) - set(_in_jobs(recovery).values_list("name", flat=True))
    counts = []
    first = None
    for stage in stages_by_job(whole):
        rows = InputFile.objects.filter(
            stage=stage, state=FileState.GIVEN_UP, reason=_give_up_reason(recovery), name__in=names
        )
        number_by_name = dict(rows.values_list("name", "number"))
        files = take_back_files(stages=[stage], names=list(number_by_name), by="", at=at)
        numbers = {number for number in number_by_name.values() if number is not None}
        follow_numbers(stage, numbers, at=at)
        counts.append(files)
        if files and first is None:
            first = stage
    if first is None:
        return 0
    data = {"files": max(counts), "stage": first.name}
    reason = f"{recovery} was {recovery.get_state_display()}."
    publish(
        kind="submission.files_taken_back",
        target=whole,
        by=PORTAL,
        at=at,
        reason=reason,
        data=data,
    )
    return max(counts)


@transaction.atomic
def take_files_again(*, request: Request, by: User, at: datetime) -> None:
    """Give up the files of a rejected recovery in its original request again.

    Raises `InvalidTransition` if the original or another recovery processes one of them.
    """
    part = DatasetPart.objects.filter(request=request, is_held=True).first()
    if part is None or part.split_from is None or request.state != RequestState.REJECTED:
        return
    whole = lock_request(part.split_from)
    files = part.files or []
    names = set(files) - set(_in_jobs(request).values_list("name", flat=True))
    taken_over = recovery_of(whole, names)
    if taken_over is not None:
        name, other = taken_over
        raise InvalidTransition(
            f"{request} cannot be reopened: {other} processes its files, such as {name}. "
            f"Cancel {other} first."
        )

    stage, *later = _recovered_stages(request, whole, len(files))
    processed = InputFile.objects.filter(
        stage=stage, name__in=names, state__in=[FileState.TAKEN, FileState.DONE]
    )
    first = processed.order_by("pk").first()
    if first is not None:
        raise InvalidTransition(
            f"{request} cannot be reopened: {whole} took back its files and processes some of "
            f"them, such as {first.name}. Request what is missing there again."
        )

    count = give_up_files(
        stage=stage,
        later=later,
        names=sorted(names),
        reason=_give_up_reason(request),
        by=by.username,
        at=at,
    )
    if count:
        publish(
            kind="submission.files_given_up",
            target=whole,
            by=by,
            at=at,
            reason=f"{request} was reopened.",
            data={"files": count, "stage": stage.name},
        )


def _recovered_stages(recovery: Request, whole: Request, files: int) -> list[Stage]:
    """Return the stage whose files a recovery has, and those after it."""
    stages = stages_by_job(whole)
    link = recovery.links_back.filter(kind=LinkKind.RECOVERED, earlier=whole).first()
    for position, stage in enumerate(stages):
        if link is not None and link.note == _link_note(stage, files):
            return stages[position:]
    return stages


def _in_jobs(recovery: Request) -> QuerySet[InputFile]:
    """Return the files that a job of a recovery is to read, or has read."""
    return InputFile.objects.filter(
        stage__request=recovery, state__in=[FileState.TAKEN, FileState.DONE]
    )


def give_settled_files_back(*, at: datetime) -> int:
    """Take back files of all recoveries that process none, and return how many.

    This is repeated: files of queued jobs are free only once these have ended, and the original
    request may have been in a state in which its files are not decided on.
    """
    files = 0
    parts = DatasetPart.objects.filter(
        is_held=True, request__state__in=GIVEN_BACK, split_from__state__in=DECIDABLE
    )
    for part in parts.select_related("request").order_by("pk"):
        given_up = InputFile.objects.filter(
            stage__request=part.split_from_id,
            state=FileState.GIVEN_UP,
            reason=_give_up_reason(part.request),
        )
        # Most have none left: their original request is not locked.
        if given_up.exclude(name__in=_in_jobs(part.request).values("name")).exists():
            files += give_files_back(recovery=part.request, at=at)
    return files


def missing_names(stage: Stage) -> list[str]:
    """Return the names of the waiting and failed files of a stage, in their order."""
    rows = InputFile.objects.filter(stage=stage, state__in=NOT_IN_A_JOB).order_by("pk")
    return list(rows.values_list("name", flat=True)[: MOST_FILES + 1])


def _plain(key: str) -> str:
    """Return a key of a request for the name of a dataset: `nova_0219`."""
    return re.sub(r"[^a-z0-9]+", "_", key.lower())


def _content_for(
    request: Request, stage: Stage, names: Sequence[str], dataset: str, at: datetime
) -> RequestContent:
    """Return the content of the draft: this stage and the later ones, for these files."""
    content = content_of(request)
    files = InputFile.objects.filter(stage=stage)
    all_files = files.count()
    numbers = files.filter(state__in=NOT_IN_A_JOB, number__isnull=False)
    jobs = numbers.order_by().values("number").distinct().count()
    stages = []
    for place, whole in enumerate(content.stages[stage.position :]):
        part = _smaller(whole, len(names), all_files)
        if place == 0:
            jobs_here = min(max(1, jobs), len(names)) if whole.jobs else None
            part = replace(part, input_dataset=dataset, jobs=jobs_here)
        stages.append(part)
    arguments = dict(content.arguments)
    stop_on = arguments.get("stop_on")
    if isinstance(stop_on, str):
        earliest = timezone.localdate(at + KEPT_UP_FOR).isoformat()
        arguments["stop_on"] = max(stop_on, earliest)
    deadline = content.deadline
    if deadline and deadline <= timezone.localdate(at):
        deadline = None
    title = f"Missing files of {request.key}: {content.title}"
    purpose = f"The {len(names):,} files that {request.key} did not process, for the same outputs."
    return replace(
        content,
        title=title[:_MOST_TITLE],
        purpose=f"{purpose}\n{content.purpose}".strip(),
        arguments=arguments,
        deadline=deadline,
        stages=tuple(stages),
    )


def _smaller(stage: StageContent, files: int, all_files: int) -> StageContent:
    """Return a stage for a part of the files."""
    return replace(
        stage,
        jobs=_part(stage.jobs, files, all_files),
        events=_part(stage.events, files, all_files),
    )


def _part(whole: int | None, files: int, all_files: int) -> int | None:
    """Return the share of a quantity that these files have, 1 at least."""
    return max(1, -(-whole * files // max(1, all_files))) if whole else None
