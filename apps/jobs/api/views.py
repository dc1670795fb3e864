"""Jobs and claims of jobs in the API."""

from typing import Any

from django.db.models import QuerySet
from django.http import Http404
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.parsers import BaseParser
from rest_framework.response import Response
from rest_framework.viewsets import ReadOnlyModelViewSet

from apps.accounts.api import ApiRequest, ApiView, ApiViewSet, command
from apps.accounts.permissions import is_opg
from apps.core.api.input import JSONParser, checked_data
from apps.core.web.turns import one_at_a_time
from apps.jobs.api.archived import gone
from apps.jobs.api.serializers import (
    AcceptClaimsWriter,
    ClaimsReader,
    ImportedReader,
    JobRecordsWriter,
    JobSerializer,
    StatisticsReader,
    WithdrawClaimsWriter,
)
from apps.jobs.domain.collection import claims
from apps.jobs.domain.collection.record_import import import_records, lines_of
from apps.jobs.domain.records.jobs import jobs_for_list, totals_as_of
from apps.jobs.domain.statistics.levels import DIMENSIONS
from apps.jobs.domain.statistics.questions import MEASURES, PERIODS
from apps.jobs.filters import ListedJobs
from apps.jobs.models import Job
from apps.jobs.web.questions import read_question
from apps.production.api.routes import OfRequests
from apps.production.models import Request

#: Maximum rows in a response.
MOST_ROWS = 1_000


class JobViewSet(ReadOnlyModelViewSet[Job], ApiViewSet[Job]):
    """Finished jobs that you can see, most recently collected first.

    The filters are those of the job list.
    """

    serializer_class = JobSerializer
    filterset_class = ListedJobs

    def get_queryset(self) -> QuerySet[Job]:
        return jobs_for_list(self.request.user)

    def get_object(self) -> Job:
        try:
            return super().get_object()
        except Http404:
            pk = self.kwargs["pk"]
            raise gone(self.request.user, int(pk)) if pk.isdecimal() else Http404 from None


class ClaimViewSet(OfRequests):
    """Jobs that claim to belong to a request without proof."""

    serializer_class: Any = ClaimsReader

    def get_object(self) -> Request:
        production_request = super().get_object()
        if self.action != "retrieve":
            claims.check_may_decide(self.request.user, production_request)
        return production_request

    def respond(self, result: Request, reader: Any = None, code: int = 200) -> Response:
        content = {
            "request": result.key,
            "claims": claims.claims_of(result),
            "accepted": claims.acceptances_of_claims(result),
        }
        return Response(ClaimsReader(content).data)

    def retrieve(self, request: ApiRequest, key: str) -> Response:
        """List the jobs that claim to belong to a request, by array, and the accepted claims."""
        return self.respond(self.get_object())

    @command(AcceptClaimsWriter, ClaimsReader)
    def accept(self, production_request: Request, **fields: Any) -> None:
        """Accept the claims of a job, an array or a user; allowed for approvers and shifters."""
        claims.accept_claims(request=production_request, **fields)

    @command(WithdrawClaimsWriter, ClaimsReader)
    def withdraw(self, production_request: Request, **fields: Any) -> None:
        """Withdraw an accepted claim: its jobs no longer count for the request."""
        claims.withdraw_claims(request=production_request, **fields)


class NdjsonParser(BaseParser):
    """Parses one JSON object per line; other lines stay text and are rejected one by one."""

    media_type = "application/x-ndjson"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        return list(lines_of(stream.read().decode("utf-8", "replace").split("\n")))


class JobRecordsView(ApiView):
    """Records of finished jobs from systems that the portal does not collect from."""

    parser_classes = [JSONParser, NdjsonParser]

    @extend_schema(
        operation_id="job_records_create",
        request={"application/json": JobRecordsWriter, "application/x-ndjson": OpenApiTypes.BINARY},
        responses=ImportedReader,
        parameters=[
            OpenApiParameter(
                "cluster", str, description="Name of the cluster, with application/x-ndjson."
            )
        ],
    )
    @one_at_a_time
    def post(self, request: ApiRequest) -> Response:
        """Store a batch of job records; for the OPG.

        Repeating a batch changes nothing. An invalid record does not affect the others.
        """
        if not is_opg(request.user):
            raise PermissionDenied
        sent = request.data
        if isinstance(sent, list):
            sent = {"cluster": request.query_params.get("cluster", ""), "records": sent}
        batch = checked_data(JobRecordsWriter(data=sent))
        return Response(ImportedReader(import_records(at=timezone.now(), **batch)).data)


_TEXTS = [
    OpenApiParameter("measure", str, enum=sorted(MEASURES), description="Default: failure_rate."),
    OpenApiParameter(
        "by", str, description=f"One to three of {', '.join(DIMENSIONS)}, separated by commas."
    ),
    OpenApiParameter(
        "since", str, description="Start of the period. Default: seven days before its end."
    ),
    OpenApiParameter(
        "until", str, description="End of the period, rounded up to the hour. Default: now."
    ),
    OpenApiParameter(
        "period", str, enum=list(PERIODS), description="Length of a period without `since`."
    ),
]


class StatisticsView(ApiView):
    """Figures of finished jobs by up to three dimensions, as on the statistics page."""

    @extend_schema(
        operation_id="statistics",
        responses=StatisticsReader,
        parameters=[
            *_TEXTS,
            *(
                OpenApiParameter(
                    name,
                    {"type": "array", "items": {"type": "string"}},
                    description="`-` for none.",
                )
                for name in DIMENSIONS
            ),
        ],
    )
    @one_at_a_time
    def get(self, request: ApiRequest) -> Response:
        """Return jobs, failures, rate with interval, core-seconds and a measure by dimensions."""
        from apps.jobs.domain.statistics.explorer import Explorer

        parsed = read_question(request.query_params, at=timezone.now(), measure="failure_rate")
        if parsed.problems:
            raise ValidationError({name: [problem] for name, problem in parsed.problems.items()})

        question = parsed.question
        answer = Explorer(request.user).answer(question, limit=MOST_ROWS)
        statistics = {
            "population": {
                "since": question.since,
                "until": question.until,
                "filters": question.filters,
                "measure": question.measure.name,
                "by": question.by,
            },
            "as_of": totals_as_of(),
            "rows": answer.rows,
            "left_out": answer.left_out,
            "total": answer.all,
        }
        return Response(StatisticsReader(statistics, context={"measure": question.measure}).data)
