"""Clones and templates in the API, through the same services as the pages."""

from dataclasses import replace
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema, extend_schema_field
from rest_framework import mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request as ApiRequest
from rest_framework.response import Response

from apps.core.api.conditional import Guarded, Versioned
from apps.core.api.input import checked_data
from apps.core.errors import InvalidFields
from apps.production.api.serializers import RequestReader
from apps.production.domain.content.plain import plain
from apps.production.domain.lineage.clones import clone_request, take_next_names
from apps.production.domain.lineage.templates import (
    MAX_NAME,
    content_from,
    delete_template,
    rename_template,
    save_template,
    templates_for,
)
from apps.production.domain.requests.drafts import create_draft
from apps.production.models import Request, RequestTemplate

_REFUSED: dict[int, Any] = {403: OpenApiResponse(description="Only a liaison of the experiment or the OPG may.")}


class DraftReader(serializers.Serializer[Any]):
    """The draft that was made, and what could not be kept in it."""

    request = RequestReader()
    notes = serializers.ListField(child=serializers.CharField())


class NextNamesWriter(serializers.Serializer[Any]):
    """With `version`, only if nobody changed the request since."""

    version = serializers.IntegerField(required=False, allow_null=True, default=None, min_value=1)


class NameWriter(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=MAX_NAME)


class TemplateWriter(NameWriter):
    """A name, and the key of the request whose content is kept; a name that is there already is written anew."""

    request = serializers.CharField(max_length=24)


class TemplateReader(serializers.ModelSerializer[RequestTemplate]):
    experiment = serializers.CharField(source="experiment.key")
    workflow = serializers.CharField(source="workflow_key")
    workflow_version = serializers.IntegerField(source="workflow_number")

    class Meta:
        model = RequestTemplate
        fields = ["id", "name", "experiment", "workflow", "workflow_version", "saved_at", "saved_by"]
        read_only_fields = fields


class TemplateDetail(TemplateReader):
    """With what a new request of it begins with, as the workflow type is now, and what could not be kept."""

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


class CloneRoutes(Versioned):
    """Routes of `RequestViewSet`."""

    @extend_schema(request=None, responses={201: DraftReader, **_REFUSED})
    @action(detail=True, methods=["post"])
    def clone(self: Any, request: ApiRequest, key: str) -> Response:
        """Make a draft with what this request holds; a liaison of its experiment may."""
        made, notes = clone_request(request=self.get_object(), by=request.user, at=timezone.now())  # type: ignore[arg-type]
        return _draft(self, made, notes)

    @extend_schema(request=NextNamesWriter, responses={200: RequestReader, **_REFUSED})
    @action(detail=True, methods=["post"], url_path="next-names")
    def next_names(self: Any, request: ApiRequest, key: str) -> Response:
        """Give the outputs of a clone the names of the next version, where the request it came from writes these."""
        wanted, sent = self.get_object(), checked_data(NextNamesWriter(data=request.data))
        version = sent["version"]
        take_next_names(request=wanted, by=request.user, at=timezone.now(), version=version)  # type: ignore[arg-type]
        answer: Response = self._answer(wanted.key)
        return answer


@extend_schema(description="Templates of experiments that you may see.")
class TemplateViewSet(Guarded, mixins.ListModelMixin, mixins.RetrieveModelMixin):
    """Templates."""

    queryset = RequestTemplate.objects.none()
    filter_backends = ()
    lookup_value_regex = "[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[RequestTemplate]:
        return templates_for(self.request.user)

    def get_serializer_class(self) -> type[TemplateReader]:
        return TemplateReader if self.action == "list" else TemplateDetail

    @extend_schema(request=TemplateWriter, responses={201: TemplateDetail, **_REFUSED})
    def create(self, request: ApiRequest) -> Response:
        """Keep what a request holds as a template; its deadline is left out."""
        given = checked_data(TemplateWriter(data=request.data))
        wanted = Request.objects.visible_to(request.user).filter(key=given["request"]).first()
        if wanted is None:
            raise InvalidFields({"request": ["There is no such request that you may see."]})
        made = save_template(request=wanted, name=given["name"], by=request.user, at=timezone.now())  # type: ignore[arg-type]
        return Response(TemplateDetail(made).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=NameWriter, responses={200: TemplateDetail, **_REFUSED})
    def partial_update(self, request: ApiRequest, pk: str) -> Response:
        """Give it another name."""
        template, given = self.get_object(), checked_data(NameWriter(data=request.data))
        renamed = rename_template(template=template, name=given["name"], by=request.user, at=timezone.now())  # type: ignore[arg-type]
        return Response(TemplateDetail(renamed).data)

    @extend_schema(responses={204: None, **_REFUSED})
    def destroy(self, request: ApiRequest, pk: str) -> Response:
        """Delete it; requests made of it stay."""
        delete_template(template=self.get_object(), by=request.user, at=timezone.now())  # type: ignore[arg-type]
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=None, responses={201: DraftReader, **_REFUSED})
    @action(detail=True, methods=["post"], url_path="make-draft")
    def make_draft(self, request: ApiRequest, pk: str) -> Response:
        """Make a draft of it; a liaison of its experiment may."""
        template = self.get_object()
        found = content_from(template)
        with transaction.atomic():
            made = create_draft(
                experiment=template.experiment,
                content=replace(found.content, deadline=None),
                by=request.user,  # type: ignore[arg-type]
                at=timezone.now(),
            )
        return _draft(self, made, found.notes)


def _draft(view: Any, made: Request, notes: list[str]) -> Response:
    told = DraftReader({"request": made, "notes": notes}, context=view.get_serializer_context())
    return Response(told.data, status=status.HTTP_201_CREATED)
