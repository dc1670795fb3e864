"""New requests from what was written before: clones, and the templates of an experiment."""

import re
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import Experiment, User
from apps.accounts.permissions import is_liaison
from apps.core.domain.events import publish
from apps.core.errors import InvalidTransition, NotAllowed
from apps.production.domain.content.model import RequestContent, StageContent
from apps.production.domain.content.stages import content_of
from apps.production.domain.requests.drafts import create_draft, save_draft
from apps.production.domain.types.arguments import Value
from apps.production.domain.types.declaration import StageType, Workflow, general
from apps.production.domain.types.fields import CORE
from apps.production.domain.types.versions import newest_version, types_for, workflow_of
from apps.production.models import Request

_VERSION = re.compile(r"(?<![A-Za-z0-9])([vV])(\d{1,6})(?![0-9])")


@dataclass(frozen=True)
class Refit:
    """Content as a version of a workflow type takes it; `notes` say what changed and what could not be kept."""

    content: RequestContent
    notes: list[str]


def next_name(name: str) -> str:
    """Return the dataset name of the next version: `a_v3.x` becomes `a_v4.x`, `a` becomes `a_v2`."""
    found = list(_VERSION.finditer(name.replace("_", ".")))  # _ is a letter to \b, but parts of a name are cut there
    if not found:
        return f"{name}_v2" if name else ""
    last = found[-1]
    number = str(int(last[2]) + 1).zfill(len(last[2]))
    return f"{name[: last.start(2)]}{number}{name[last.end(2) :]}"


def with_next_names(content: RequestContent, taken: RequestContent) -> RequestContent:
    """Return content whose outputs no longer have the names of those of `taken`, nor its inputs that are these."""
    names = {stage.output_dataset for stage in taken.stages if stage.output_dataset}
    new = {s.output_dataset: next_name(s.output_dataset) for s in content.stages if s.output_dataset in names}
    stages = tuple(
        replace(
            stage,
            output_dataset=new.get(stage.output_dataset, stage.output_dataset),
            input_dataset=new.get(stage.input_dataset, stage.input_dataset),
        )
        for stage in content.stages
    )
    return replace(content, stages=stages)


def taken_names(request: Request) -> list[tuple[str, str]]:
    """Return the outputs that the request it was cloned from writes already, each with a name that is free of that."""
    if request.cloned_from is None:
        return []
    theirs = {stage.output_dataset for stage in request.cloned_from.stages.all() if stage.output_dataset}
    mine = [stage.output_dataset for stage in request.stages.all()]
    return [(name, next_name(name)) for name in dict.fromkeys(mine) if name in theirs]


@transaction.atomic
def clone_request(*, request: Request, by: User, at: datetime) -> tuple[Request, list[str]]:
    """Make a draft with what another request of the experiment holds; return it, and what could not be kept.

    A deadline that has passed is left out. Raises `NotAllowed`, `InvalidFields`.
    """
    if not is_liaison(by, request.experiment_id):
        raise NotAllowed(f"Only a liaison of {request.experiment} may write its requests.")
    found = refit(content_of(request), experiment=request.experiment)
    content = found.content
    if content.deadline and content.deadline <= timezone.localdate(at):
        content = replace(content, deadline=None)
    made = create_draft(experiment=request.experiment, content=content, by=by, at=at)
    made.cloned_from = request
    made.save(update_fields=["cloned_from"])
    publish(kind="request.cloned", target=request, by=by, at=at, data={"clone": made.key})
    return made, found.notes


@transaction.atomic
def take_next_names(*, request: Request, by: User, at: datetime, version: int | None = None) -> Request:
    """Rename a clone's outputs that the request it came from writes as well. Raises what `save_draft` raises."""
    if not is_liaison(by, request.experiment_id):
        raise NotAllowed(f"Only a liaison of {request.experiment} may write its requests.")
    if request.cloned_from is None:
        raise InvalidTransition(f"{request} is no clone: its names are its own.")
    content = with_next_names(content_of(request), content_of(request.cloned_from))
    seen = request.version if version is None else version
    return save_draft(request=request, content=content, version=seen, by=by, at=at)


def refit(content: RequestContent, *, experiment: Experiment, version: int | None = None) -> Refit:
    """Return content as the newest version of its type takes it, or the general type where its own is out of use."""
    old, before = content.workflow, content.workflow.number if version is None else version
    newest = newest_version(old.key)
    usable = newest is not None and types_for(experiment).filter(pk=newest.type_id).exists()
    new = workflow_of(newest) if newest is not None and usable else general()
    notes = []
    if not usable:
        notes.append(f"The type “{old.title or old.key}” is not in use any more: this is now {new.title}.")
    elif new.number != before:
        notes.append(f"It was written for version {before} of {new.title}; this is now version {new.number}.")
    lost: list[str] = []
    arguments = _fitting(content.arguments, new, "The request", lost)
    stages = tuple(_refitted(stage, new, number, lost) for number, stage in enumerate(content.stages, start=1))
    return Refit(replace(content, workflow=new, arguments=arguments, stages=stages), notes + lost)


def _refitted(stage: StageContent, new: Workflow, number: int, lost: list[str]) -> StageContent:
    place, kind = f"Stage {number}{f' {stage.name}' if stage.name else ''}", new.stage(stage.kind)
    if not new.knows(stage.kind):
        lost.append(f"{place}: there is no kind “{stage.kind}” any more; it is now {kind.title}.")
    return replace(stage, kind=kind.key, arguments=_fitting(stage.arguments, kind, place, lost))


def _fitting(given: Any, declared: Workflow | StageType, place: str, lost: list[str]) -> dict[str, Value]:
    kept: dict[str, Value] = {}
    for name, value in given.items():
        argument = declared.argument(name)
        if argument is None or name in CORE or argument.problem(value):
            text = ", ".join(value) if isinstance(value, list) else str(value)
            lost.append(f"{place}: “{name}” could not be kept, it was {text[:200]}.")
        else:
            kept[name] = value
    return kept
