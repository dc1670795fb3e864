"""How requests ran, in the API."""

from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request as ApiRequest
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from apps.diagnosis.domain.request_report import read_frozen, report_of
from apps.diagnosis.models import RequestReport
from apps.production.models import Request


class RequestReportReader(serializers.Serializer[Any]):
    """The report; `sha256` is null while the request is open and the report may still change."""

    sha256 = serializers.CharField(allow_null=True)
    report = serializers.JSONField()


class RequestReportViewSet(GenericViewSet[Request]):
    """How requests ran."""

    queryset = Request.objects.none()
    serializer_class = RequestReportReader
    lookup_field = "key"
    lookup_value_regex = "[^/.]+"

    def get_queryset(self) -> QuerySet[Request]:
        return Request.objects.visible_to(self.request.user).select_related("experiment")

    @extend_schema(responses=RequestReportReader)
    def retrieve(self, request: ApiRequest, key: str) -> Response:
        """Return how one request ran: as of now, or as it was frozen when the request was closed."""
        wanted = self.get_object()
        kept = RequestReport.objects.filter(request=wanted).first()
        content = read_frozen(kept) if kept else report_of(wanted, at=timezone.now())
        return Response(RequestReportReader({"sha256": kept.sha256 if kept else None, "report": content}).data)
