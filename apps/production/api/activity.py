"""Activity and earlier versions of a request in the API."""

from typing import Any

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.exceptions import NotFound
from rest_framework.response import Response

from apps.accounts.api import ApiRequest
from apps.core.api.input import valid
from apps.core.api.views import StrictView
from apps.core.domain.events import events_of
from apps.core.models import Event
from apps.production.api.checks import CheckedReader
from apps.production.api.routes import RequestRoutes
from apps.production.api.serializers import ChangeReader, RequestWriter
from apps.production.domain.checks import Severity
from apps.production.domain.checks.registry import rules_by_severity
from apps.production.domain.checks.report import check_report
from apps.production.domain.content.revisions import (
    compare,
    content_at,
    last_reviewed,
    revisions_of,
)
from apps.production.domain.content.serialization import plain
from apps.production.domain.content.stages import content_of
from apps.production.models import RequestRevision

#: Maximum number of events of a request.
MAX_EVENTS = 1_000


class EventReader(serializers.ModelSerializer[Event]):
    class Meta:
        model = Event
        fields = ["id", "kind", "actor", "at", "old", "new", "reason", "data"]
        read_only_fields = fields


class RevisionReader(serializers.ModelSerializer[RequestRevision]):
    class Meta:
        model = RequestRevision
        fields = ["id", "version", "begun_at", "at", "by", "is_submitted"]
        read_only_fields = fields


class RevisionDetail(RevisionReader):
    """A version with the content of the request."""

    content = serializers.SerializerMethodField()

    class Meta(RevisionReader.Meta):
        fields = [*RevisionReader.Meta.fields, "content"]
        read_only_fields = fields

    @extend_schema_field(OpenApiTypes.OBJECT)
    def get_content(self, revision: RequestRevision) -> dict[str, Any]:
        return plain(content_at(revision.request, revision))


class ComparisonReader(serializers.Serializer[Any]):
    """Differences between two versions. `new` is null for the current request."""

    old = RevisionReader()
    new = RevisionReader(allow_null=True)
    changes = ChangeReader(many=True)


class RuleReader(serializers.Serializer[Any]):
    rule = serializers.CharField()
    severity = serializers.ChoiceField(choices=Severity.choices)
    description = serializers.CharField()


class HistoryRoutes(RequestRoutes):
    @extend_schema(responses=EventReader(many=True), filters=False)
    @action(detail=True, methods=["get"], pagination_class=None)
    def events(self, request: ApiRequest, key: str) -> Response:
        """List the activity of the request, newest first."""
        rows: Any = events_of(self.get_object()).order_by("-id")[:MAX_EVENTS]
        return Response(EventReader(rows, many=True).data)

    @extend_schema(responses=RevisionReader(many=True), filters=False)
    @action(detail=True, methods=["get"], pagination_class=None)
    def revisions(self, request: ApiRequest, key: str) -> Response:
        """List the versions of the request, newest first."""
        rows: Any = revisions_of(self.get_object())
        return Response(RevisionReader(rows, many=True).data)

    @extend_schema(
        responses=RevisionDetail,
        parameters=[OpenApiParameter("number", int, OpenApiParameter.PATH)],
    )
    @action(
        detail=True,
        methods=["get"],
        url_path="revisions/(?P<number>[0-9]{1,18})",
        pagination_class=None,
    )
    def revision(self, request: ApiRequest, key: str, number: str) -> Response:
        """Return the content of the request at a version."""
        revision = (
            self.get_object()
            .revisions.select_related("request__workflow__type")
            .filter(pk=number)
            .first()
        )
        if revision is None:
            raise NotFound
        return Response(RevisionDetail(revision).data)

    @extend_schema(
        parameters=[
            OpenApiParameter(
                "old", int, description="Id of a version. Default: the last that was reviewed."
            ),
            OpenApiParameter(
                "new", int, description="Id of a version. Default: the current request."
            ),
        ],
        responses=ComparisonReader,
        filters=False,
    )
    @action(detail=True, methods=["get"], pagination_class=None)
    def changes(self, request: ApiRequest, key: str) -> Response:
        """List the differences between two versions, by field."""
        production_request = self.get_object()
        kept = {str(revision.pk): revision for revision in revisions_of(production_request)}
        old = self._chosen(kept, "old")
        new = self._chosen(kept, "new")
        old = old or last_reviewed(production_request)
        if old is None:
            raise NotFound
        return Response(ComparisonReader(compare(production_request, old=old, new=new)).data)

    @extend_schema(request=RequestWriter, responses=CheckedReader, filters=False)
    @action(detail=True, methods=["post"], url_name="check-saved", pagination_class=None)
    def check(self, request: ApiRequest, key: str) -> Response:
        """Check and estimate the request with the sent fields, without saving it."""
        production_request = self.get_object()
        sent = valid(RequestWriter(data=request.data))
        content = sent.content(content_of(production_request))
        report = check_report(
            content,
            experiment=production_request.experiment,
            request=production_request,
            by=request.user,
            at=timezone.now(),
        )
        return Response(CheckedReader(report).data)

    def _chosen(self, kept: dict[str, RequestRevision], name: str) -> RequestRevision | None:
        number = self.request.query_params.get(name, "")
        if not number:
            return None
        if number not in kept:
            raise NotFound(f"{name}: this request has no such version.")
        return kept[number]


class RuleListView(StrictView):
    @extend_schema(operation_id="checks_list", responses=RuleReader(many=True))
    def get(self, request: ApiRequest) -> Response:
        """List the rules for checking requests, most severe first."""
        rows = []
        for severity, _, rules in rules_by_severity():
            for name, text in rules:
                rows.append({"rule": name, "severity": severity, "description": text})
        return Response(RuleReader(rows, many=True).data)
