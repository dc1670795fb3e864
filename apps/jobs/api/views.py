"""Jobs and claims of jobs in the API."""

from typing import Any

from django.db.models import QuerySet
from rest_framework.response import Response
from rest_framework.viewsets import ReadOnlyModelViewSet

from apps.accounts.api import ApiRequest, ApiViewSet, command
from apps.jobs.api.serializers import AcceptClaimsWriter, ClaimsReader, JobSerializer, WithdrawClaimsWriter
from apps.jobs.domain import claims
from apps.jobs.domain.jobs import jobs_for_list
from apps.jobs.filters import JobFilter
from apps.jobs.models import Job
from apps.production.api.routes import OfRequests
from apps.production.models import Request


class JobViewSet(ReadOnlyModelViewSet[Job], ApiViewSet[Job]):
    """Finished jobs that you can see, most recently collected first, with the filters of the job list."""

    serializer_class = JobSerializer
    filterset_class = JobFilter

    def get_queryset(self) -> QuerySet[Job]:
        return jobs_for_list(self.request.user)


class ClaimViewSet(OfRequests):
    """Jobs that claim to belong to a request without proof."""

    serializer_class: Any = ClaimsReader

    def get_object(self) -> Request:
        wanted = super().get_object()
        if self.action != "retrieve":
            claims.check_may_decide(self.request.user, wanted)
        return wanted

    def answer(self, done: Request, reader: Any = None, code: int = 200) -> Response:
        content = {
            "request": done.key,
            "claims": claims.claims_of(done),
            "accepted": claims.acceptances_of_claims(done),
        }
        return Response(ClaimsReader(content).data)

    def retrieve(self, request: ApiRequest, key: str) -> Response:
        """List the jobs that claim to belong to a request, by array, and the accepted claims."""
        return self.answer(self.get_object())

    @command(AcceptClaimsWriter, ClaimsReader)
    def accept(self, wanted: Request, **given: Any) -> None:
        """Accept the claims of a job, an array or a user; allowed for approvers and shifters."""
        claims.accept_claims(request=wanted, **given)

    @command(WithdrawClaimsWriter, ClaimsReader)
    def withdraw(self, wanted: Request, **given: Any) -> None:
        """Withdraw an acceptance: its jobs no longer count for the request."""
        claims.withdraw_claims(request=wanted, **given)
