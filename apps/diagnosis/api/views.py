"""Verdicts and logs in the API, by the portal's ID of the job."""

from typing import Any

from django.db.models import Exists, OuterRef, QuerySet, Subquery, Sum
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ReadOnlyModelViewSet

from apps.accounts.api import ApiRequest, ApiView, ApiViewSet, command
from apps.accounts.models import User
from apps.core.api.input import checked_data
from apps.diagnosis.api.serializers import (
    AssignmentSerializer,
    CorrectionSerializer,
    GroupSerializer,
    LogQuery,
    LogSerializer,
    NoteSerializer,
    StatusSerializer,
    VerdictDetailSerializer,
    VerdictSerializer,
)
from apps.diagnosis.domain.groups import triage as groups
from apps.diagnosis.domain.reading.log_windows import log_view
from apps.diagnosis.domain.verdicts.harvest import reanalyse_log
from apps.diagnosis.domain.verdicts.override import override_verdict
from apps.diagnosis.enums import GroupStatus, Stream, VerdictKind
from apps.diagnosis.filters import FailedJobs, FailureGroups
from apps.diagnosis.models import DailyCauseTotals, FailureGroup, Verdict
from apps.diagnosis.permissions import may_correct_verdict
from apps.jobs.api.archived import gone
from apps.jobs.models import Job


class JobLogView(ApiView):
    """Logs of jobs."""

    @extend_schema(parameters=[LogQuery], responses=LogSerializer)
    def get(self, request: ApiRequest, pk: int) -> Response:
        """Return the last lines of a job's log, or earlier ones, with known errors marked."""
        query = checked_data(LogQuery(data=request.query_params))
        job = (
            Job.objects.visible_to(request.user)
            .select_related("cluster", "experiment")
            .filter(pk=pk)
            .first()
        )
        if job is None:
            raise gone(request.user, pk)
        if "stream" in query:
            query["stream"] = Stream(query["stream"])
        return Response(LogSerializer(log_view(job, **query)).data)


def _may_correct(user: User, verdict: Verdict) -> bool:
    return may_correct_verdict(user, verdict.job.experiment_id)


class VerdictViewSet(ReadOnlyModelViewSet[Verdict], ApiViewSet[Verdict]):
    """Verdicts on failed jobs: why a job failed, what to do, and the evidence."""

    serializer_class = VerdictSerializer
    filterset_class = FailedJobs
    lookup_field = "job"
    lookup_value_regex = r"\d{1,18}"

    def get_queryset(self) -> QuerySet[Verdict]:
        joined = ("job__cluster", "job__harvest", "job__experiment", "experiment", "retried_on")
        return Verdict.objects.visible_to(self.request.user).select_related(*joined)

    def get_serializer_class(self) -> type[VerdictSerializer]:
        if self.action == "retrieve":
            return VerdictDetailSerializer
        return VerdictSerializer

    @command(CorrectionSerializer, VerdictDetailSerializer, allowed=_may_correct)
    def correct(self, current: Verdict, *, verdict: str, **fields: Any) -> Verdict:
        """Override the verdict. For the OPG and liaisons of the job's experiment."""
        override_verdict(job=current.job, verdict=VerdictKind(verdict), **fields)
        return self.get_object()

    @command(code=202, url_path="harvest-again", allowed=_may_correct)
    def harvest_again(self, verdict: Verdict, **fields: Any) -> None:
        """Re-analyse the job's log. For the OPG and liaisons of the job's experiment."""
        reanalyse_log(job=verdict.job, **fields)


class GroupViewSet(ReadOnlyModelViewSet[FailureGroup], ApiViewSet[FailureGroup]):
    """Failure groups: failures with one fingerprint, counting the jobs that the caller may see."""

    serializer_class = GroupSerializer
    filterset_class = FailureGroups
    lookup_value_regex = r"\d{1,9}"

    def get_queryset(self) -> QuerySet[FailureGroup]:
        user = self.request.user
        mine = (
            DailyCauseTotals.objects.visible_to(user)
            .filter(group=OuterRef("pk"))
            .order_by()
            .values("group")
        )
        names = ("jobs", "succeeded", "core_seconds")
        sums = {name: Subquery(mine.annotate(total=Sum(name)).values("total")) for name in names}
        hidden = Exists(groups.totals_of_others(user).filter(group=OuterRef("pk")))
        visible = groups.visible_groups(user).annotate(has_hidden_jobs=hidden, **sums)
        return visible.order_by("-last_seen_at", "-pk")

    @command(AssignmentSerializer, GroupSerializer, allowed=groups.may_triage)
    def assign(self, group: FailureGroup, **fields: Any) -> FailureGroup:
        """Assign a failure group to a user. For the OPG, and liaisons of all experiments in it."""
        groups.assign_group(group=group, **fields)
        return self.get_object()

    @command(StatusSerializer, GroupSerializer, allowed=groups.may_triage)
    def status(self, group: FailureGroup, *, status: str, **fields: Any) -> FailureGroup:
        """Mark a group as known, retried, resolved or muted.

        For the OPG, and liaisons of all experiments in it.
        """
        groups.set_status(group=group, status=GroupStatus(status), **fields)
        return self.get_object()

    @command(reader=GroupSerializer, allowed=groups.may_triage)
    def unmute(self, group: FailureGroup, **fields: Any) -> FailureGroup:
        """Return a muted group to its status before the mute.

        For the OPG, and liaisons of all experiments in it.
        """
        groups.unmute_group(group=group, **fields)
        return self.get_object()

    @command(NoteSerializer, code=201, allowed=groups.may_triage)
    def notes(self, group: FailureGroup, **fields: Any) -> None:
        """Add a note to a failure group. For the OPG, and liaisons of all experiments in it."""
        groups.add_note(group=group, **fields)
