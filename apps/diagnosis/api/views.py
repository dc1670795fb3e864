"""Verdicts over the API, by the portal's id of their job."""

from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core.api.input import checked_data
from apps.diagnosis.api.serializers import CorrectionSerializer, VerdictDetailSerializer, VerdictSerializer
from apps.diagnosis.domain.harvest import harvest_again
from apps.diagnosis.domain.verdicts import override_verdict
from apps.diagnosis.enums import VerdictKind
from apps.diagnosis.filters import FailedJobs
from apps.diagnosis.models import Verdict


class VerdictViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet):
    """Whose problem each failed job is, what to do, and why. `POST …/harvest-again/` has its log read anew."""

    queryset = Verdict.objects.select_related("job__cluster", "job__harvest", "experiment")
    serializer_class = VerdictSerializer
    filterset_class = FailedJobs
    lookup_field = "job"
    lookup_url_kwarg = "job"
    lookup_value_regex = r"\d{1,18}"

    def get_queryset(self) -> QuerySet[Any]:
        return Verdict.objects.visible_to(self.request.user).select_related(
            "job__cluster", "job__harvest", "job__experiment", "experiment"
        )

    def get_serializer_class(self) -> type[VerdictSerializer]:
        return VerdictDetailSerializer if self.action == "retrieve" else VerdictSerializer

    @extend_schema(request=CorrectionSerializer, responses=VerdictDetailSerializer)
    @action(detail=True, methods=["post"])
    def correct(self, request: Request, job: str) -> Response:
        """Say what it is instead of the rules; who of the job's experiment or the OPG may, in their name."""
        sent = checked_data(CorrectionSerializer(data=request.data))
        override_verdict(
            job=self.get_object().job,
            verdict=VerdictKind(sent["verdict"]),
            by=request.user,
            at=timezone.now(),
            reason=sent["reason"],
        )
        return Response(VerdictDetailSerializer(self.get_object()).data)

    @extend_schema(request=None, responses={202: None})
    @action(detail=True, methods=["post"], url_path="harvest-again")
    def harvest_again(self, request: Request, job: str) -> Response:
        harvest_again(job=self.get_object().job, by=request.user, at=timezone.now())
        return Response(status=status.HTTP_202_ACCEPTED)
