"""Templates of an experiment, from which new requests start."""

from dataclasses import replace
from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from apps.accounts.models import Experiment, User
from apps.accounts.permissions import is_liaison, is_opg, scope_of
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, NotAllowed
from apps.production.domain.content.serialization import plain, read_plain
from apps.production.domain.content.stages import content_of
from apps.production.domain.lineage.clones import Refit, refit
from apps.production.domain.types.declaration import general_workflow
from apps.production.domain.types.versions import newest_version, workflow_of
from apps.production.models import Request, RequestTemplate

MAX_NAME = 80
MAX_TEMPLATES = 200


def templates_for(user: User) -> QuerySet[RequestTemplate]:
    templates: QuerySet[RequestTemplate] = RequestTemplate.objects.visible_to(user)
    return templates.select_related("experiment").order_by("experiment__key", "name")


def may_manage(user: User, experiment_id: int) -> bool:
    return is_liaison(user, experiment_id) or is_opg(user)


@transaction.atomic
def save_template(*, request: Request, name: str, by: User, at: datetime) -> RequestTemplate:
    """Save a request as a template, and replace an existing one of this name.

    Raises `NotAllowed`, `InvalidFields`.
    """
    if not (scope_of(by).sees(request.experiment_id) and may_manage(by, request.experiment_id)):
        raise NotAllowed(
            f"Only liaisons of {request.experiment} and the OPG can save its templates."
        )
    name = _checked_name(name)
    Experiment.objects.select_for_update().get(pk=request.experiment_id)
    mine = RequestTemplate.objects.filter(experiment=request.experiment_id)
    if not mine.filter(name=name).exists() and mine.count() >= MAX_TEMPLATES:
        raise InvalidFields(
            {"name": [f"An experiment has at most {MAX_TEMPLATES} templates. Delete one first."]}
        )
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
def rename_template(
    *, template: RequestTemplate, name: str, by: User, at: datetime
) -> RequestTemplate:
    """Rename a template. Raises `NotAllowed`, `InvalidFields`."""
    _check_manager(by, template)
    old = template.name
    template.name = _checked_name(name)
    try:
        with transaction.atomic():
            template.save(update_fields=["name"])
    except IntegrityError:
        raise InvalidFields(
            {"name": ["Another template of the experiment has this name."]}
        ) from None
    publish(
        kind="template.renamed", target=template, by=by, at=at, old=old[:64], new=template.name[:64]
    )
    return template


@transaction.atomic
def delete_template(*, template: RequestTemplate, by: User, at: datetime) -> None:
    """Delete a template. Requests that were made from it stay. Raises `NotAllowed`."""
    _check_manager(by, template)
    publish(kind="template.deleted", target=template, by=by, at=at)
    template.delete()


def _check_manager(by: User, template: RequestTemplate) -> None:
    if not may_manage(by, template.experiment_id):
        raise NotAllowed(
            f"Only liaisons of {template.experiment} and the OPG can change its templates."
        )


def _checked_name(name: str) -> str:
    name = name.strip()
    if not name or len(name) > MAX_NAME or "\0" in name:
        raise InvalidFields({"name": [f"Enter a name of at most {MAX_NAME} characters."]})
    return name


def content_from(template: RequestTemplate) -> Refit:
    """Return the content of a new request from this template, in the newest version of its type."""
    newest = newest_version(template.workflow_key)
    if newest:
        workflow = workflow_of(newest)
    else:
        workflow = replace(general_workflow(), key=template.workflow_key)
    data = template.content

    # Keep arguments as they are: `refit` reports those that no longer exist.
    bare = [{**stage, "arguments": {}} for stage in data["stages"]]
    content, _ = read_plain({**data, "arguments": {}, "stages": bare}, workflow)
    filled = []
    for stage, stored in zip(content.stages, data["stages"], strict=True):
        filled.append(replace(stage, arguments=stored.get("arguments", {})))
    stages = tuple(filled)
    content = replace(content, arguments=data["arguments"], stages=stages)
    return refit(content, experiment=template.experiment, version=template.workflow_number)
