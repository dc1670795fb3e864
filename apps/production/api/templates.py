"""Clones and templates in the API."""

from dataclasses import replace
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema_field
from rest_framework import serializers
from rest_framework.viewsets import ReadOnlyModelViewSet

from apps.accounts.api import ApiViewSet, command
from apps.accounts.models import User
from apps.accounts.permissions import is_opg
from apps.core.api.conditional import Guarded
from apps.core.errors import InvalidFields
from apps.production.api.routes import RequestRoutes
from apps.production.api.serializers import RequestReader
from apps.production.domain.content.serialization import plain
from apps.production.domain.lineage.clones import clone_request, take_next_names
from apps.production.domain.lineage.templates import (
    MAX_NAME,
    content_from,
    delete_template,
    may_manage,
    rename_template,
    save_template,
    templates_for,
)
from apps.production.domain.requests.drafts import create_draft
from apps.production.models import Request, RequestTemplate
from apps.production.permissions import is_liaison_of, may_create

_REFUSED = {
    403: OpenApiResponse(description="Only liaisons of the experiment and the OPG can do this.")
}


class DraftReader(serializers.Serializer[Any]):
    """The new draft, with notes on values that could not be copied."""

    request = RequestReader()
    notes = serializers.ListField(child=serializers.CharField())


class NextNamesWriter(serializers.Serializer[Any]):
    """With `version`, refused if the request has changed since."""

    version = serializers.IntegerField(required=False, allow_null=True, default=None, min_value=1)


class NameWriter(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=MAX_NAME)


class TemplateWriter(NameWriter):
    """A name, and the key of the request to copy. An existing template of that name is replaced."""

    request = serializers.CharField(max_length=24)


class TemplateReader(serializers.ModelSerializer[RequestTemplate]):
    experiment = serializers.CharField(source="experiment.key")
    workflow = serializers.CharField(source="workflow_key")
    workflow_version = serializers.IntegerField(source="workflow_number")

    class Meta:
        model = RequestTemplate
        fields = [
            "id",
            "name",
            "experiment",
            "workflow",
            "workflow_version",
            "saved_at",
            "saved_by",
        ]
        read_only_fields = fields


class TemplateDetail(TemplateReader):
    """A template with the content of a new request under the current workflow type.

    `notes` are about values that could not be copied.
    """

    content = serializers.SerializerMethodField()
    notes = serializers.SerializerMethodField()

    class Meta(TemplateReader.Meta):
        fields = [*TemplateReader.Meta.fields, "content", "notes"]
        read_only_fields = fields

    @extend_schema_field(OpenApiTypes.OBJECT)
    def get_content(self, template: RequestTemplate) -> dict[str, Any]:
        return plain(content_from(template).content)

    def get_notes(self, template: RequestTemplate) -> list[str]:
        return content_from(template).notes


class CloneRoutes(RequestRoutes):
    @command(reader=DraftReader, code=201, refused=_REFUSED, allowed=is_liaison_of)
    def clone(self, production_request: Request, **fields: Any) -> dict[str, Any]:
        """Create a draft with the content of this request. Liaisons of the experiment only."""
        made, notes = clone_request(request=production_request, **fields)
        return {"request": made, "notes": notes}

    @command(
        NextNamesWriter,
        RequestReader,
        refused=_REFUSED,
        url_path="next-names",
        allowed=is_liaison_of,
    )
    def next_names(self, production_request: Request, **fields: Any) -> Request:
        """Rename outputs of a clone that the original request also writes to their next version."""
        return take_next_names(request=production_request, **fields)


def _may_save(user: User, _: None) -> bool:
    return may_create(user) or is_opg(user)


def _may_manage(user: User, template: RequestTemplate) -> bool:
    return may_manage(user, template.experiment_id)


class TemplateViewSet(Guarded, ReadOnlyModelViewSet[RequestTemplate], ApiViewSet[RequestTemplate]):
    """Templates that you can see."""

    lookup_value_regex = "[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[RequestTemplate]:
        return templates_for(self.request.user)

    def get_serializer_class(self) -> type[TemplateReader]:
        return TemplateReader if self.action == "list" else TemplateDetail

    @command(TemplateWriter, TemplateDetail, code=201, refused=_REFUSED, allowed=_may_save)
    def create(self, *, request: str, **fields: Any) -> RequestTemplate:
        """Save a request as a template, without its deadline."""
        production_request = (
            Request.objects.visible_to(self.request.user).filter(key=request).first()
        )
        if production_request is None:
            raise InvalidFields({"request": ["Not found, or you do not have access."]})
        return save_template(request=production_request, **fields)

    @command(NameWriter, TemplateDetail, refused=_REFUSED, allowed=_may_manage)
    def partial_update(self, template: RequestTemplate, **fields: Any) -> RequestTemplate:
        """Rename a template."""
        return rename_template(template=template, **fields)

    @command(code=204, refused=_REFUSED, allowed=_may_manage)
    def destroy(self, template: RequestTemplate, **fields: Any) -> None:
        """Delete a template. Requests that were created from it stay."""
        delete_template(template=template, **fields)

    @command(
        reader=DraftReader, code=201, refused=_REFUSED, url_path="make-draft", allowed=is_liaison_of
    )
    def make_draft(self, template: RequestTemplate, **fields: Any) -> dict[str, Any]:
        """Create a draft from a template. Liaisons of the experiment only."""
        refitted = content_from(template)
        content = replace(refitted.content, deadline=None)
        made = create_draft(experiment=template.experiment, content=content, **fields)
        return {"request": made, "notes": refitted.notes}
