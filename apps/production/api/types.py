"""Workflow types in the API, with their arguments as JSON Schema."""

from collections.abc import Iterable
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import mixins, serializers

from apps.accounts.api import ApiViewSet
from apps.production.domain.types.arguments import Argument
from apps.production.domain.types.versions import newest_versions, visible_types, workflow_of
from apps.production.models import WorkflowVersion


class WorkflowReader(serializers.ModelSerializer[WorkflowVersion]):
    """The newest version of a type.

    `request` and each of `stages` are JSON Schemas of `arguments` and fields.
    """

    key = serializers.CharField(source="type.key")
    request = serializers.SerializerMethodField()
    stages = serializers.SerializerMethodField()

    class Meta:
        model = WorkflowVersion
        fields = ["key", "number", "title", "created_at", "created_by", "request", "stages"]

    @extend_schema_field(OpenApiTypes.OBJECT)
    def get_request(self, version: WorkflowVersion) -> dict[str, Any]:
        return _schema(workflow_of(version).arguments)

    @extend_schema_field(OpenApiTypes.OBJECT)
    def get_stages(self, version: WorkflowVersion) -> dict[str, Any]:
        stages = {}
        for kind in workflow_of(version).stages:
            stages[kind.key] = {"title": kind.title, **_schema(kind.arguments)}
        return stages


class WorkflowViewSet(
    mixins.ListModelMixin, mixins.RetrieveModelMixin, ApiViewSet[WorkflowVersion]
):
    """Newest version of each workflow type that you can see."""

    noun = "workflow type"
    serializer_class = WorkflowReader
    pagination_class = None
    lookup_field = "type__key"
    lookup_url_kwarg = "key"
    lookup_value_regex = "[a-z0-9_]{1,40}"

    def get_queryset(self) -> Any:
        return newest_versions(visible_types(self.request.user))


def _schema(arguments: Iterable[Argument]) -> dict[str, Any]:
    declared = list(arguments)
    return {
        "type": "object",
        "properties": {argument.name: argument.schema() for argument in declared},
        "required": [argument.name for argument in declared if argument.required],
    }
