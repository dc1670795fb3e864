"""Verdicts in the API, by the portal's id of their job."""

from typing import Any

from django.db.models import QuerySet
from rest_framework.viewsets import ReadOnlyModelViewSet

from apps.accounts.api import ApiViewSet, command
from apps.diagnosis.api.serializers import CorrectionSerializer, VerdictDetailSerializer, VerdictSerializer
from apps.diagnosis.domain.harvest import reanalyse_log
from apps.diagnosis.domain.verdicts import override_verdict
from apps.diagnosis.enums import VerdictKind
from apps.diagnosis.filters import FailedJobs
from apps.diagnosis.models import Verdict


class VerdictViewSet(ReadOnlyModelViewSet[Verdict], ApiViewSet[Verdict]):
    """Verdicts on failed jobs: why a job failed, what to do, and the evidence."""

    serializer_class = VerdictSerializer
    filterset_class = FailedJobs
    lookup_field = "job"
    lookup_value_regex = r"\d{1,18}"

    def get_queryset(self) -> QuerySet[Verdict]:
        joined = ("job__cluster", "job__harvest", "job__experiment", "experiment")
        return Verdict.objects.visible_to(self.request.user).select_related(*joined)

    def get_serializer_class(self) -> type[VerdictSerializer]:
        return VerdictDetailSerializer if self.action == "retrieve" else VerdictSerializer

    @command(CorrectionSerializer, VerdictDetailSerializer)
    def correct(self, found: Verdict, *, verdict: str, **given: Any) -> Verdict:
        """Override the verdict. For the OPG and liaisons of the job's experiment."""
        override_verdict(job=found.job, verdict=VerdictKind(verdict), **given)
        return self.get_object()

    @command(code=202, url_path="harvest-again")
    def harvest_again(self, found: Verdict, **given: Any) -> None:
        """Re-analyse the job's log. For the OPG and liaisons of the job's experiment."""
        reanalyse_log(job=found.job, **given)
