"""Submissions in the API: `/submissions/<request>/` lists them; the actions send, send again, and hand out scripts."""

from typing import Any

from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request as ApiRequest
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from apps.core.api.input import checked_data
from apps.core.errors import InvalidFields
from apps.production.domain.outputs.acceptance import withdraw_acceptance
from apps.production.enums import Verb
from apps.production.models import Request
from apps.production.web.lookup import request_or_404
from apps.submission.api.serializers import (
    AcceptWriter,
    AssignWriter,
    CancelWriter,
    LimitWriter,
    RetryWriter,
    SendAgainWriter,
    SubmissionReader,
)
from apps.submission.domain import assignment
from apps.submission.domain.acceptance import accept_stage
from apps.submission.domain.bundle import write_bundle
from apps.submission.domain.limits import set_limit
from apps.submission.domain.submissions import may_submit

_LIST = SubmissionReader(many=True)


class SubmissionViewSet(GenericViewSet[Any]):
    """The arrays of jobs that the portal sent for a request."""

    queryset = Request.objects.none()
    serializer_class = SubmissionReader
    pagination_class = None
    filter_backends = ()
    lookup_field = "key"
    lookup_value_regex = "[^/.]+"

    @extend_schema(responses=_LIST)
    def retrieve(self, request: ApiRequest, key: str) -> Response:
        """List the submissions of a request, the first one first."""
        return self._answer(request_or_404(request.user, key))

    @extend_schema(request=AssignWriter, responses=_LIST)
    @action(detail=True, methods=["post"])
    def assign(self, request: ApiRequest, key: str) -> Response:
        """Let the portal send the jobs of a request to a cluster; an approver or shifter may."""
        wanted = self._for_operator(key)
        sent = checked_data(AssignWriter(data=request.data))
        begin = sent.pop("begin")
        assignment.assign_request(
            request=wanted,
            by=request.user,  # type: ignore[arg-type]
            at=timezone.now(),
            verb=Verb(begin) if begin else None,
            **sent,
        )
        return self._answer(wanted)

    @extend_schema(request=RetryWriter, responses=_LIST)
    @action(detail=True, methods=["post"])
    def retry(self, request: ApiRequest, key: str) -> Response:
        """Send the failed jobs of a stage again."""
        wanted, given = self._for_operator(key), checked_data(RetryWriter(data=request.data))
        assignment.retry_failed(request=wanted, by=request.user, at=timezone.now(), **given)  # type: ignore[arg-type]
        return self._answer(wanted)

    @extend_schema(request=SendAgainWriter, responses=_LIST)
    @action(detail=True, methods=["post"])
    def again(self, request: ApiRequest, key: str) -> Response:
        """Send an array again that the scheduler has refused."""
        wanted, given = self._for_operator(key), checked_data(SendAgainWriter(data=request.data))
        submission = wanted.submissions.filter(number=given["number"]).first()
        if submission is None:
            raise InvalidFields({"number": ["There is no such array of this request."]})
        assignment.send_refused_again(submission=submission, by=request.user, at=timezone.now())  # type: ignore[arg-type]
        return self._answer(wanted)

    @extend_schema(request=AcceptWriter, responses=_LIST)
    @action(detail=True, methods=["post"])
    def accept(self, request: ApiRequest, key: str) -> Response:
        """Go on without the jobs of a stage that did not complete; the request is then partially done."""
        wanted, given = self._for_operator(key), checked_data(AcceptWriter(data=request.data))
        accept_stage(request=wanted, by=request.user, at=timezone.now(), **given)  # type: ignore[arg-type]
        return self._answer(wanted)

    @extend_schema(request=AcceptWriter, responses=_LIST)
    @action(detail=True, methods=["post"], url_path="wait-again")
    def wait_again(self, request: ApiRequest, key: str) -> Response:
        """Wait again for the jobs of a stage that was taken as it is."""
        wanted, given = self._for_operator(key), checked_data(AcceptWriter(data=request.data))
        withdraw_acceptance(request=wanted, by=request.user, at=timezone.now(), **given)  # type: ignore[arg-type]
        return self._answer(wanted)

    @extend_schema(request=LimitWriter, responses=_LIST)
    @action(detail=True, methods=["post"])
    def limit(self, request: ApiRequest, key: str) -> Response:
        """Change how many jobs of a request may wait and run together, from the next turn on."""
        wanted, given = self._for_operator(key), checked_data(LimitWriter(data=request.data))
        set_limit(request=wanted, by=request.user, at=timezone.now(), **given)  # type: ignore[arg-type]
        return self._answer(wanted)

    @extend_schema(request=CancelWriter, responses=_LIST)
    @action(detail=True, methods=["post"])
    def cancel(self, request: ApiRequest, key: str) -> Response:
        """Have the schedulers end every job of a request that they have."""
        wanted, given = self._for_operator(key), checked_data(CancelWriter(data=request.data))
        assignment.cancel_sent(request=wanted, by=request.user, at=timezone.now(), **given)  # type: ignore[arg-type]
        return self._answer(wanted)

    @extend_schema(responses={(200, "application/x-tar"): OpenApiTypes.BINARY})
    @action(detail=True)
    def bundle(self, request: ApiRequest, key: str) -> HttpResponse:
        """Hand out the scripts of a request as a tar, to be submitted by hand."""
        wanted = self._for_operator(key)
        return HttpResponse(write_bundle(request=wanted, at=timezone.now()), content_type="application/x-tar")

    def _for_operator(self, key: str) -> Request:
        wanted = request_or_404(self.request.user, key)
        if not may_submit(self.request.user, wanted):
            raise PermissionDenied("Only an approver or a shifter of the OPG may send jobs.")
        return wanted

    def _answer(self, wanted: Request) -> Response:
        rows = wanted.submissions.select_related("request", "cluster", "retry_of").order_by("number")
        return Response(SubmissionReader(rows, many=True).data)
