"""How requests ran, in the API."""

from typing import Any

from django.utils import timezone
from rest_framework import serializers
from rest_framework.response import Response

from apps.accounts.api import ApiRequest
from apps.production.api.routes import OfRequests
from apps.progress.domain.production_report import read_frozen, report_of
from apps.progress.models import ProductionReport


class RequestReportReader(serializers.Serializer[Any]):
    """The report; `sha256` is null while the request is open and the report may still change."""

    sha256 = serializers.CharField(allow_null=True)
    report = serializers.JSONField()


class RequestReportViewSet(OfRequests):
    """How requests ran."""

    serializer_class = RequestReportReader

    def retrieve(self, request: ApiRequest, key: str) -> Response:
        """Return how one request ran: as of now, or as it was frozen when the request was closed."""
        wanted = self.get_object()
        kept = ProductionReport.objects.filter(request=wanted).first()
        content = read_frozen(kept) if kept else report_of(wanted, at=timezone.now())
        return Response(RequestReportReader({"sha256": kept.sha256 if kept else None, "report": content}).data)
