"""Workflow types in the database: built-in types, new versions, and the current version."""

from datetime import datetime
from functools import lru_cache
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery

from apps.accounts.models import Experiment, Principal, User
from apps.accounts.permissions import scope_of
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields
from apps.production.domain.types.declaration import (
    DeclarationError,
    Workflow,
    builtin_texts,
    read_declaration,
)
from apps.production.enums import PORTAL
from apps.production.models import WorkflowType, WorkflowVersion


@transaction.atomic
def save_workflow(
    *, workflow_type: WorkflowType, declaration: str, by: Principal, at: datetime
) -> WorkflowVersion:
    """Save a declaration as the next version unless it is unchanged.

    Raises `InvalidFields` with every fault.
    """
    WorkflowType.objects.select_for_update().get(pk=workflow_type.pk)
    newest = workflow_type.versions.order_by("-number").first()
    if newest is not None and newest.declaration == declaration:
        return newest
    number = newest.number + 1 if newest else 1
    try:
        workflow = read_declaration(declaration, key=workflow_type.key, number=number)
    except DeclarationError as error:
        raise InvalidFields(
            {"declaration": [f"{place}: {what}" for place, what in error.problems]}
        ) from error
    version = WorkflowVersion.objects.create(
        type=workflow_type,
        number=number,
        title=workflow.title,
        declaration=declaration,
        created_at=at,
        created_by=str(by),
    )
    publish(kind="workflow.saved", target=version, by=by, at=at, new=str(number))
    return version


@transaction.atomic
def load_builtin_workflows(*, at: datetime) -> None:
    """Create the built-in types, and new versions of those that an upgrade changed.

    Types that were edited locally stay unchanged.
    """
    for key, text in builtin_texts().items():
        workflow_type, made = WorkflowType.objects.get_or_create(key=key)
        newest = None
        if not made:
            newest = workflow_type.versions.order_by("-number").first()
        if made or (newest and newest.created_by == PORTAL and newest.declaration != text):
            title = read_declaration(text, key=key).title
            values = {"title": title, "declaration": text, "created_at": at, "created_by": PORTAL}
            WorkflowVersion.objects.create(
                type=workflow_type, number=newest.number + 1 if newest else 1, **values
            )


def types_for(experiment: Experiment | None) -> QuerySet[WorkflowType]:
    return WorkflowType.objects.filter(Q(experiment=None) | Q(experiment=experiment), enabled=True)


def visible_types(user: User) -> QuerySet[Any]:
    """Return the enabled types that this user can see, with the `title` of the newest version."""
    newest = (
        WorkflowVersion.objects.filter(type=OuterRef("pk")).order_by("-number").values("title")[:1]
    )
    types = (
        WorkflowType.objects.filter(enabled=True)
        .annotate(title=Subquery(newest))
        .exclude(title=None)
    )
    scope = scope_of(user)
    if not scope.sees_all:
        types = types.filter(Q(experiment=None) | Q(experiment__in=scope.experiment_keys))
    return types.order_by("title")


def newest_version(key: str) -> WorkflowVersion | None:
    return newest_versions(WorkflowType.objects.filter(key=key)).first()


def newest_versions(types: QuerySet[WorkflowType]) -> QuerySet[WorkflowVersion]:
    """Return the newest version of each of these types, by title."""
    later = WorkflowVersion.objects.filter(type=OuterRef("type"), number__gt=OuterRef("number"))
    versions = WorkflowVersion.objects.filter(~Exists(later), type__in=types.values("pk"))
    return versions.select_related("type__experiment").order_by("title", "pk")


def version_of(workflow: Workflow, *, experiment: Experiment, at: datetime) -> WorkflowVersion:
    """Return the row of a workflow; number 0 stands for the newest version.

    Raises `InvalidFields` if it is unknown or not available to new requests of this experiment.
    """
    versions = WorkflowVersion.objects.filter(type__key=workflow.key).order_by("-number")
    if workflow.number:
        versions = versions.filter(number=workflow.number)
    version = versions.first()
    if version is None and workflow.key in builtin_texts() and not workflow.number:
        load_builtin_workflows(at=at)
        version = versions.first()
    # One message for all cases, so that types of other experiments are not revealed.
    if version is None or not types_for(experiment).filter(pk=version.type_id).exists():
        what = (
            f"The workflow type “{workflow.key[:40]}” does not exist in this version, or is not "
            "available."
        )
        raise InvalidFields({"workflow": [what]})
    return version


def workflow_of(version: WorkflowVersion) -> Workflow:
    return _read(version.type.key, version.number, version.declaration)


@lru_cache(maxsize=200)
def _read(key: str, number: int, declaration: str) -> Workflow:
    return read_declaration(declaration, key=key, number=number)
