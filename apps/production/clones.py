"""New requests from what was written before: clones, and the templates of an experiment."""

import re
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from apps.accounts.models import Experiment, User
from apps.accounts.permissions import is_liaison, is_opg, scope_of
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed, StaleState
from apps.core.services import publish
from apps.production import services
from apps.production.content import RequestContent, StageContent
from apps.production.models import Request, RequestTemplate
from apps.production.plain import plain, read_plain
from apps.production.selectors import content_of
from apps.production.workflow_types import newest_version, types_for, workflow_of
from apps.production.workflows.arguments import Value
from apps.production.workflows.builtin import general
from apps.production.workflows.declaration import CORE, StageType, Workflow

MAX_NAME = 80
MAX_TEMPLATES = 200
#: What a page tells of a change that could not be made.
REFUSALS = (InvalidFields, InvalidTransition, StaleState)
_VERSION = re.compile(r"(?<![A-Za-z0-9])([vV])(\d{1,6})(?![0-9])")


@dataclass(frozen=True)
class Refitted:
    """Content as a version of a workflow type takes it; `notes` say what changed and what could not be kept."""

    content: RequestContent
    notes: list[str]


def bumped(name: str) -> str:
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
    new = {s.output_dataset: bumped(s.output_dataset) for s in content.stages if s.output_dataset in names}
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
    return [(name, bumped(name)) for name in dict.fromkeys(mine) if name in theirs]


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
    made = services.create_draft(experiment=request.experiment, content=content, by=by, at=at)
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
    return services.save_draft(request=request, content=content, version=seen, by=by, at=at)


def refit(content: RequestContent, *, experiment: Experiment, version: int | None = None) -> Refitted:
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
    return Refitted(replace(content, workflow=new, arguments=arguments, stages=stages), notes + lost)


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


def templates_for(user: Any) -> QuerySet[RequestTemplate]:
    """Return the templates that this person may look at, by experiment and name."""
    templates: QuerySet[RequestTemplate] = RequestTemplate.objects.visible_to(user)
    return templates.select_related("experiment").order_by("experiment__key", "name")


def may_manage(user: Any, experiment_id: int) -> bool:
    """Tell whether this person may make, rename and delete templates of the experiment."""
    return is_liaison(user, experiment_id) or is_opg(user)


@transaction.atomic
def save_template(*, request: Request, name: str, by: User, at: datetime) -> RequestTemplate:
    """Make a template of a request, or write the one of this name anew. Raises `NotAllowed`, `InvalidFields`."""
    if not (scope_of(by).sees(request.experiment_id) and may_manage(by, request.experiment_id)):
        raise NotAllowed(f"Only a liaison of {request.experiment} or the OPG may make its templates.")
    name = name.strip()
    if not name or len(name) > MAX_NAME or "\0" in name:
        raise InvalidFields({"name": [f"Give it a name of at most {MAX_NAME} characters."]})
    Experiment.objects.select_for_update().get(pk=request.experiment_id)
    mine = RequestTemplate.objects.filter(experiment=request.experiment_id)
    if not mine.filter(name=name).exists() and mine.count() >= MAX_TEMPLATES:
        raise InvalidFields({"name": [f"An experiment has at most {MAX_TEMPLATES} templates. Delete one first."]})
    content = replace(content_of(request), deadline=None)
    made, _ = RequestTemplate.objects.update_or_create(
        experiment=request.experiment,
        name=name,
        defaults={
            "workflow_key": content.workflow.key,
            "workflow_number": content.workflow.number,
            "content": plain(content),
            "saved_at": at,
            "saved_by": str(by)[:150],
        },
    )
    publish(kind="template.saved", target=made, by=by, at=at, data={"request": request.key})
    return made


@transaction.atomic
def rename_template(*, template: RequestTemplate, name: str, by: User, at: datetime) -> RequestTemplate:
    """Give a template another name. Raises `NotAllowed`, `InvalidFields`."""
    _manages(by, template)
    old, template.name = template.name, name.strip()
    if not template.name or len(template.name) > MAX_NAME or "\0" in name:
        raise InvalidFields({"name": [f"Give it a name of at most {MAX_NAME} characters."]})
    try:
        with transaction.atomic():
            template.save(update_fields=["name"])
    except IntegrityError:
        raise InvalidFields({"name": ["Another template of the experiment has this name."]}) from None
    publish(kind="template.renamed", target=template, by=by, at=at, old=old[:64], new=template.name[:64])
    return template


@transaction.atomic
def delete_template(*, template: RequestTemplate, by: User, at: datetime) -> None:
    """Delete a template; requests made of it stay. Raises `NotAllowed`."""
    _manages(by, template)
    publish(kind="template.deleted", target=template, by=by, at=at)
    template.delete()


def _manages(by: User, template: RequestTemplate) -> None:
    if not may_manage(by, template.experiment_id):
        raise NotAllowed(f"Only a liaison of {template.experiment} or the OPG may change its templates.")


def content_from(template: RequestTemplate) -> Refitted:
    """Return what a new request of this template begins with, in the newest version of its type."""
    newest = newest_version(template.workflow_key)
    workflow = workflow_of(newest) if newest else general()
    named = replace(workflow, key=template.workflow_key) if newest is None else workflow
    read = _as_written(template.content, named)
    return refit(read, experiment=template.experiment, version=template.workflow_number)


def _as_written(data: dict[str, Any], workflow: Workflow) -> RequestContent:
    """Read what a template holds, with arguments as they are: `refit` tells which of them are not taken any more."""
    stages = [{**stage, "arguments": {}} for stage in data["stages"]]
    content, _ = read_plain({**data, "arguments": {}, "stages": stages}, workflow)
    whole = zip(content.stages, data["stages"], strict=True)
    return replace(
        content,
        arguments=data["arguments"],
        stages=tuple(replace(stage, arguments=given.get("arguments", {})) for stage, given in whole),
    )
