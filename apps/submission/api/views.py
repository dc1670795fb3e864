"""Submissions in the API: `/submissions/<request>/` lists them; actions submit,
retry and return scripts.
"""

from typing import Any

from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.response import Response

from apps.accounts.api import ApiRequest, command
from apps.core.errors import InvalidFields
from apps.core.web.turns import one_at_a_time
from apps.production.api.routes import OfRequests
from apps.production.domain.outputs.acceptance import withdraw_acceptance
from apps.production.enums import Verb
from apps.production.models import Request
from apps.production.web.lookup import request_or_404
from apps.submission.api.serializers import (
    AcceptWriter,
    AssignWriter,
    CancelWriter,
    FollowAdviceWriter,
    IgnoreAdviceWriter,
    LimitWriter,
    ReleaseWriter,
    RetryWriter,
    ScoutsReader,
    SendAgainWriter,
    SubmissionReader,
)
from apps.submission.domain.arrays import assignment
from apps.submission.domain.arrays.ignored_advice import follow_advice, ignore_advice
from apps.submission.domain.arrays.limits import set_limit
from apps.submission.domain.arrays.request_bundle import write_bundle
from apps.submission.domain.arrays.shortfalls import accept_stage
from apps.submission.domain.arrays.submissions import check_may_submit
from apps.submission.domain.dispatch.held import request_release
from apps.submission.domain.retries.by_stage import retry_failed
from apps.submission.models import Submission

_LIST = SubmissionReader(many=True)


class SubmissionViewSet(OfRequests):
    """The job arrays that the portal submitted for a request."""

    serializer_class: Any = SubmissionReader

    def get_object(self) -> Request:
        production_request = request_or_404(self.request.user, self.kwargs["key"])
        if self.action not in {"retrieve", "scouts"}:
            check_may_submit(self.request.user, production_request)
        return production_request

    def respond(self, result: Request, reader: Any = None, code: int = 200) -> Response:
        """Answer with the submissions of the request."""
        rows = result.submissions.select_related("request", "cluster", "retry_of").order_by(
            "number"
        )
        return Response(SubmissionReader(rows, many=True).data)

    @extend_schema(responses=_LIST)
    def retrieve(self, request: ApiRequest, key: str) -> Response:
        """List the submissions of a request, oldest first."""
        return self.respond(self.get_object())

    @extend_schema(responses=ScoutsReader(many=True))
    @action(detail=True)
    def scouts(self, request: ApiRequest, key: str) -> Response:
        """List the stages whose first jobs run before the others, and what their ends show."""
        rows = self.get_object().scouts.select_related("request", "group", "hold")
        return Response(ScoutsReader(rows.order_by("position"), many=True).data)

    @command(AssignWriter, _LIST)
    def assign(self, production_request: Request, *, begin: str | None, **fields: Any) -> None:
        """Assign a request to a cluster, to which the portal submits its jobs;
        allowed for approvers and shifters.
        """
        assignment.assign_request(
            request=production_request, verb=Verb(begin) if begin else None, **fields
        )

    @command(RetryWriter, _LIST)
    def retry(self, production_request: Request, **fields: Any) -> None:
        """Retry the failed jobs of a stage."""
        retry_failed(request=production_request, **fields)

    @command(SendAgainWriter, _LIST)
    def again(self, production_request: Request, *, number: int, **fields: Any) -> None:
        """Submit again an array that the scheduler refused."""
        assignment.send_refused_again(submission=_array(production_request, number), **fields)

    @command(AcceptWriter, _LIST)
    def accept(self, production_request: Request, **fields: Any) -> None:
        """Continue without the jobs of a stage that did not complete;
        the request is then partially done.
        """
        accept_stage(request=production_request, **fields)

    @command(AcceptWriter, _LIST, url_path="wait-again")
    def wait_again(self, production_request: Request, **fields: Any) -> None:
        """Wait again for the missing jobs of a stage that was accepted as is."""
        withdraw_acceptance(request=production_request, **fields)

    @command(LimitWriter, _LIST)
    def limit(self, production_request: Request, **fields: Any) -> None:
        """Change the maximum number of queued and running jobs of a request."""
        set_limit(request=production_request, **fields)

    @command(IgnoreAdviceWriter, _LIST, url_path="ignore-advice")
    def ignore_advice(self, production_request: Request, **fields: Any) -> None:
        """Submit the jobs of a request for some hours although the advice is not to."""
        ignore_advice(request=production_request, **fields)

    @command(FollowAdviceWriter, _LIST, url_path="follow-advice")
    def follow_advice(self, production_request: Request, **fields: Any) -> None:
        """Follow the advice on submissions again."""
        follow_advice(request=production_request, **fields)

    @command(CancelWriter, _LIST)
    def cancel(self, production_request: Request, **fields: Any) -> None:
        """Cancel all submitted jobs of a request."""
        assignment.cancel_sent(request=production_request, **fields)

    @command(ReleaseWriter, _LIST)
    def release(self, production_request: Request, *, number: int, **fields: Any) -> None:
        """Ask the scheduler to release the held jobs of an array."""
        request_release(submission=_array(production_request, number), **fields)

    @extend_schema(responses={(200, "application/x-tar"): OpenApiTypes.BINARY})
    @action(detail=True)
    @one_at_a_time
    def bundle(self, request: ApiRequest, key: str) -> HttpResponse:
        """Return the scripts of a request as a tar, to be submitted by hand."""
        content = write_bundle(request=self.get_object(), at=timezone.now())
        return HttpResponse(content, content_type="application/x-tar")


def _array(production_request: Request, number: int) -> Submission:
    submission = production_request.submissions.filter(number=number).first()
    if submission is None:
        raise InvalidFields({"number": ["Unknown array of this request."]})
    return submission
