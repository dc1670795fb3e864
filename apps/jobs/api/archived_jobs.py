"""Jobs of archived months in the API."""

from typing import Any

from django.http import Http404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response

from apps.accounts.api import ApiRequest, ApiViewSet
from apps.core.domain.pagination import newest_first
from apps.core.web.turns import one_at_a_time
from apps.jobs.api.serializers import JobSerializer
from apps.jobs.domain.months.archived_records import JobHistory, archived_job
from apps.jobs.filters import JobFilter
from apps.jobs.models import Job
from apps.jobs.web.archived_jobs import months_of


class UnreadableMonthReader(serializers.Serializer[Any]):
    """An archived month that could not be read, and why."""

    month = serializers.DateField()
    reason = serializers.CharField()


class JobHistoryReader(serializers.Serializer[Any]):
    """Jobs of archived months, newest first."""

    next = serializers.CharField(
        allow_null=True, help_text="The query of the next page; null at the end."
    )
    read = serializers.ListField(child=serializers.DateField(), help_text="Months read so far.")
    unreadable = UnreadableMonthReader(many=True)
    results = JobSerializer(many=True)


class JobHistoryViewSet(ApiViewSet[Job]):
    """Jobs of archived months that you can see. The filters are those of the job list."""

    serializer_class = JobSerializer
    queryset = Job.objects.none()

    @extend_schema(
        operation_id="job_history_list",
        responses=JobHistoryReader,
        parameters=[
            OpenApiParameter("after", str, description="The position, from `next`."),
            *(OpenApiParameter(name, str) for name in JobFilter.base_filters),
        ],
    )
    @one_at_a_time
    def list(self, request: ApiRequest) -> Response:
        """List jobs of archived months, newest first, 50 at a time."""
        visible = Job.objects.visible_to(request.user)
        jobs = JobFilter(request.query_params, queryset=visible, request=request)
        if not jobs.is_valid():
            raise ValidationError(jobs.errors)
        history = JobHistory(months_of(jobs, request.query_params))
        page = newest_first(jobs.qs, by="ended_at", query=request.query_params, find=history.find)
        unreadable = []
        for month, reason in history.unreadable.items():
            unreadable.append({"month": month, "reason": reason})
        content = {
            "next": page.next_query or None,
            "read": history.read,
            "unreadable": unreadable,
            "results": page.rows,
        }
        return Response(JobHistoryReader(content).data)

    @extend_schema(operation_id="job_history_retrieve", responses=JobSerializer)
    def retrieve(self, request: ApiRequest, pk: str) -> Response:
        """Return the record of an archived job."""
        job = archived_job(int(pk), user=request.user) if pk.isdecimal() else None
        if job is None:
            raise Http404
        return Response(JobSerializer(job).data)
