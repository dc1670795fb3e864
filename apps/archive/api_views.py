"""The archive over the API, to read only; contents come as the bytes that were stored."""

from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import status, viewsets
from rest_framework.decorators import action
from rest_framework.exceptions import APIException
from rest_framework.request import Request

from apps.archive.filters import ArchivedJobs
from apps.archive.models import ArchivedJob, Blob
from apps.archive.pin_api import PinActions
from apps.archive.selectors import DamagedContent, jobs_for_list, read_blob
from apps.archive.serializers import ArchivedJobSerializer


class Damaged(APIException):
    """What was stored is no more."""

    status_code = status.HTTP_410_GONE


_BYTES = {(200, "application/octet-stream"): OpenApiResponse(OpenApiTypes.BINARY)}


class ArchivedJobViewSet(PinActions, viewsets.ReadOnlyModelViewSet):
    """Jobs as they lay in the spool. `…/script/` and `…/environment/` answer with the stored bytes."""

    queryset = ArchivedJob.objects.all()
    serializer_class = ArchivedJobSerializer
    filterset_class = ArchivedJobs
    lookup_value_regex = r"\d{1,18}"

    def get_queryset(self) -> QuerySet[Any]:
        return jobs_for_list(self.request.user)

    @extend_schema(responses=_BYTES)
    @action(detail=True)
    def script(self, request: Request, pk: str) -> HttpResponse:
        return _bytes(self.get_object().script)

    @extend_schema(responses=_BYTES)
    @action(detail=True)
    def environment(self, request: Request, pk: str) -> HttpResponse:
        return _bytes(self.get_object().environment)


def _bytes(blob: Blob) -> HttpResponse:
    headers = {"Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff"}
    try:
        content = read_blob(blob)
    except DamagedContent as error:
        raise Damaged(f"This {blob.kind} is damaged in the archive: it {error}.") from error
    return HttpResponse(content, content_type="application/octet-stream", headers=headers)
