"""Requests and their stages as content, and as texts for pages."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.db.models import Prefetch, QuerySet, prefetch_related_objects

from apps.production.domain.content.model import (
    FIELDS,
    STAGE_FIELDS,
    RequestContent,
    StageContent,
    values_of,
)
from apps.production.domain.types.arguments import Argument, Value
from apps.production.domain.types.fields import CORE
from apps.production.domain.types.versions import workflow_of
from apps.production.models import Request, Stage


def with_people(requests: QuerySet[Request]) -> QuerySet[Request]:
    """Prefetch the relations that a request list shows."""
    # Few joins: PostgreSQL plans four in 2 ms, but the ten that `with_stages` would need in 30 ms.
    joined = requests.select_related("experiment", "created_by", "submitted_by", "approved_by")
    return joined.prefetch_related("closed_by", "workflow__type", "superseded_by", "attention")


def with_stages(requests: QuerySet[Request]) -> QuerySet[Request]:
    """Prefetch stages, services and users of requests, in a fixed number of queries."""
    # Few joins, as above. Relations that most requests lack cost no query for these requests.
    joined = requests.select_related(
        "experiment", "created_by", "submitted_by", "approved_by", "workflow__type"
    )
    others = ("closed_by", "superseded_by", "cloned_from", "attention")
    stages = (
        Stage.objects.order_by("position").select_related("location").prefetch_related("services")
    )
    return joined.prefetch_related(Prefetch("stages", stages), *others)


def stored_content(request: Request) -> RequestContent:
    """Return the content of a request as stored in the database, in three queries."""
    return content_of(Request.objects.select_related("workflow__type").get(pk=request.pk))


def content_of(request: Request, *, services: bool = True) -> RequestContent:
    """Return the content of a request, optionally without the services of its stages.

    It takes at most two queries besides the one for the workflow, and none for prefetched
    relations.
    """
    stored_stages = list(request.stages.all())
    if services:
        prefetch_related_objects(stored_stages, "services")
    stages = []
    for stored_stage in stored_stages:
        if services:
            slugs = [service.slug for service in stored_stage.services.all()]
        else:
            slugs = []
        stage = StageContent(
            kind=stored_stage.kind,
            arguments=stored_stage.arguments,
            services=tuple(slugs),
            **values_of(stored_stage, STAGE_FIELDS),
        )
        stages.append(stage)
    return RequestContent(
        workflow=workflow_of(request.workflow),
        arguments=request.arguments,
        stages=tuple(stages),
        **values_of(request, FIELDS),
    )


@dataclass(frozen=True)
class ArgumentText:
    title: str
    text: str


def argument_texts(declared: Iterable[Argument], values: Mapping[str, Value]) -> list[ArgumentText]:
    """Return the declared arguments that have a value, as texts."""
    texts = []
    for argument in declared:
        value = values.get(argument.name)
        if value is not None and argument.name not in CORE:
            texts.append(ArgumentText(argument.title, argument.write(value)))
    return texts
