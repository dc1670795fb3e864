"""Archived jobs in the API, read-only; contents are returned byte for byte."""

from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.exceptions import APIException, NotFound, PermissionDenied, ValidationError
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ReadOnlyModelViewSet

from apps.accounts.api import ApiRequest, ApiViewSet, command
from apps.archive.api.serializers import (
    ArchivedJobSerializer,
    CaptureChoiceSerializer,
    DifferenceSerializer,
    NewPinSerializer,
    PinSerializer,
)
from apps.archive.domain.differences import difference, last_success
from apps.archive.domain.retention import pin_job, unpin_job
from apps.archive.domain.search.search import hits_in
from apps.archive.domain.store.conflicts import choose_capture, undo_capture_choice
from apps.archive.domain.store.contents import DamagedContent, archived_jobs_for_list, read_blob
from apps.archive.filters import ArchivedJobs
from apps.archive.models import ArchivedJob, Blob, Pin
from apps.archive.permissions import may_choose_capture, sees_environment
from apps.archive.web.downloads import chosen_jobs, tar_response
from apps.core.domain.pagination import Page
from apps.core.web.turns import one_at_a_time

ROWS = 100
MOST_ROWS = 1000


class Damaged(APIException):
    """What was stored is no more."""

    status_code = status.HTTP_410_GONE


_BYTES = {(200, "application/octet-stream"): OpenApiResponse(OpenApiTypes.BINARY)}


class ByMark(BasePagination):
    """Pages of the archive as the list has them, newest submission first; `next` leads on."""

    page: Page[ArchivedJob]

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any]:
        size = request.query_params.get("page_size", "")
        if size.isdecimal() and len(size) < 10:
            count = min(int(size), MOST_ROWS)
        else:
            count = ROWS
        self.page = view.chosen.page(request.query_params, size=max(count, 1))
        self.url = request.build_absolute_uri(request.path)
        return self.page.rows

    def get_paginated_response(self, data: Any) -> Response:
        following = None
        if self.page.next_query:
            following = self.url + self.page.next_query
        return Response({"next": following, "stopped_at": self.page.stopped_at, "results": data})

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        stopped = (
            "Any text was looked for in the jobs back to this time; `next` looks on from there."
        )
        properties = {
            "next": {"type": "string", "format": "uri", "nullable": True},
            "stopped_at": {
                "type": "string",
                "format": "date-time",
                "nullable": True,
                "description": stopped,
            },
            "results": schema,
        }
        return {"type": "object", "required": list(properties), "properties": properties}

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        return [
            {"name": "after", "in": "query", "required": False, "schema": {"type": "string"}},
            {
                "name": "page_size",
                "in": "query",
                "required": False,
                "schema": {"type": "integer", "maximum": MOST_ROWS},
            },
        ]


class ArchivedJobViewSet(ReadOnlyModelViewSet[ArchivedJob], ApiViewSet[ArchivedJob]):
    """Jobs as they lay in the spool.

    `…/script/`, `…/environment/`, `…/description/` answer with the stored bytes.
    """

    serializer_class = ArchivedJobSerializer
    pagination_class = ByMark
    filterset_class = ArchivedJobs
    lookup_value_regex = r"\d{1,18}"
    chosen: ArchivedJobs

    def get_queryset(self) -> QuerySet[ArchivedJob]:
        return archived_jobs_for_list(self.request.user)

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep the filters for the page, as what is in scripts is looked for page by page."""
        if self.action not in ("list", "tar"):
            return queryset
        self.chosen = ArchivedJobs(self.request.query_params, queryset)
        if not self.chosen.is_valid():
            raise ValidationError(self.chosen.errors)
        return queryset

    def get_serializer_context(self) -> dict[str, Any]:
        """Add the hits of the page's rows, all read at once."""
        context = dict(super().get_serializer_context())
        if (
            self.action == "list"
            and isinstance(self.paginator, ByMark)
            and hasattr(self.paginator, "page")
        ):
            context["hits"] = hits_in(self.paginator.page.rows, self.chosen.search)
        return context

    @extend_schema(responses=_BYTES)
    @action(detail=True)
    def script(self, request: ApiRequest, pk: str) -> HttpResponse:
        """Return the script as it lay in the spool, with secrets masked."""
        return _bytes(self.get_object().script)

    @extend_schema(responses=_BYTES)
    @action(detail=True)
    def environment(self, request: ApiRequest, pk: str) -> HttpResponse:
        """Return the environment as it lay in the spool, with secrets masked."""
        return _bytes(self._with_environment().environment)

    @extend_schema(responses=_BYTES)
    @action(detail=True, url_path="description", url_name="description")
    def as_described(self, request: ApiRequest, pk: str) -> HttpResponse:
        """Return the description of a job by its scheduler. 404 if it wrote none."""
        job = self._with_environment()
        if job.description is None:
            raise NotFound
        return _bytes(job.description)

    def _with_environment(self) -> ArchivedJob:
        job = self.get_object()
        if not sees_environment(self.request.user, job):
            raise PermissionDenied
        return job

    @extend_schema(
        parameters=[
            OpenApiParameter(
                "other", int, description="ID of the other job. Default: the last success."
            ),
            OpenApiParameter("exact", bool, description="Also report what differs in every run."),
        ],
        responses=DifferenceSerializer,
    )
    @action(detail=True)
    @one_at_a_time
    def diff(self, request: ApiRequest, pk: str) -> Response:
        """Compare script and environment with those of another job."""
        job = self.get_object()
        user = request.user
        number = request.query_params.get("other", "")
        if number:
            if not (number.isdecimal() and len(number) < 19):
                raise ValidationError({"other": ["A number is wanted."]})
            other = self.get_queryset().defer(None).filter(pk=number).first()
        else:
            other, _ = last_success(job, user=user) or (None, "")
        if other is None:
            raise NotFound("There is no such job to compare with.")
        exact = request.query_params.get("exact", "").lower() in ("1", "true")
        return Response(DifferenceSerializer(difference(other, job, user=user, exact=exact)).data)

    @extend_schema(
        parameters=[
            OpenApiParameter(
                "id",
                int,
                many=True,
                description="IDs of jobs. Default: the jobs that match the filters.",
            )
        ],
        responses={(200, "application/x-tar"): OpenApiResponse(OpenApiTypes.BINARY)},
        filters=True,
    )
    @action(detail=False, pagination_class=None)
    @one_at_a_time
    def tar(self, request: ApiRequest) -> HttpResponseBase:
        """Return scripts of many jobs as a tar, with the environments that you may see."""
        self.filter_queryset(self.get_queryset())
        return tar_response(request.user, chosen_jobs(request.user, request.query_params))

    @command(NewPinSerializer, PinSerializer)
    def pin(self, job: ArchivedJob, **fields: Any) -> Pin:
        """Pin a job: retention rules do not delete it."""
        return pin_job(job=job, **fields)

    @command(code=204)
    def unpin(self, job: ArchivedJob, **fields: Any) -> None:
        """Unpin a job: retention rules apply to it again."""
        unpin_job(job=job, **fields)

    @command(
        CaptureChoiceSerializer,
        ArchivedJobSerializer,
        allowed=may_choose_capture,
        url_path="use-capture",
    )
    def use_capture(self, job: ArchivedJob, **fields: Any) -> ArchivedJob:
        """Choose this capture where the captures of a job differ."""
        return choose_capture(job=job, **fields)

    @command(
        CaptureChoiceSerializer,
        ArchivedJobSerializer,
        allowed=may_choose_capture,
        url_path="undo-choice",
    )
    def undo_choice(self, job: ArchivedJob, **fields: Any) -> ArchivedJob:
        """Undo the choice among captures of a job that differ."""
        return undo_capture_choice(job=job, **fields)


def _bytes(blob: Blob) -> HttpResponse:
    headers = {"Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff"}
    try:
        content = read_blob(blob)
    except DamagedContent as error:
        raise Damaged(f"This {blob.kind} is damaged in the archive: it {error}.") from error
    return HttpResponse(content, content_type="application/octet-stream", headers=headers)
