"""Progress, production reports and weekly reports in the API."""

from datetime import date
from typing import Any

import django_filters
from django.db.models import QuerySet
from django.http import Http404
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.response import Response
from rest_framework.viewsets import ReadOnlyModelViewSet

from apps.accounts.api import ApiRequest, ApiViewSet
from apps.core.api.input import checked_data
from apps.core.web.moments import DayFilter
from apps.production.api.routes import OfRequests
from apps.progress.domain.points import PointProgress, PointStage
from apps.progress.domain.production_report import read_frozen, report_of
from apps.progress.domain.progress import RequestNow, StageNow, progress_now
from apps.progress.domain.weekly_summaries import (
    SummedWeek,
    first_day,
    week_of_campaign,
    week_of_experiments,
)
from apps.progress.models import ProductionReport, WeeklyReport


class AcceptanceReader(serializers.Serializer[StageNow]):
    """A stage that was accepted without jobs that did not complete."""

    by = serializers.CharField(source="acceptance.by")
    at = serializers.DateTimeField(source="acceptance.at")
    reason = serializers.CharField(source="acceptance.reason")
    jobs_missing = serializers.IntegerField(source="acceptance.jobs_missing")
    events_missing = serializers.IntegerField(allow_null=True)


class StageProgressReader(serializers.Serializer[StageNow]):
    """The progress of a stage.

    Null means unknown; `queued`, `running` and `held` are null if no cluster has responded.
    """

    stage = serializers.CharField(source="progress.stage")
    jobs_requested = serializers.IntegerField(source="progress.requested_jobs", allow_null=True)
    done = serializers.IntegerField(source="progress.completed")
    tests = serializers.IntegerField(source="progress.outside_production.tests")
    failed = serializers.IntegerField(source="progress.sums.failed")
    interrupted = serializers.IntegerField(source="progress.sums.interrupted")
    retried = serializers.IntegerField(source="progress.sums.retried")
    queued = serializers.IntegerField(source="waiting.queued", default=None, allow_null=True)
    running = serializers.IntegerField(source="waiting.running", default=None, allow_null=True)
    held = serializers.IntegerField(source="waiting.held", default=None, allow_null=True)
    files_in = serializers.IntegerField(source="counts.files_in", allow_null=True)
    events_in = serializers.IntegerField(source="counts.events_in", allow_null=True)
    files_out = serializers.IntegerField(source="counts.files_out", allow_null=True)
    events_out = serializers.IntegerField(source="counts.events_out", allow_null=True)
    expected_end = serializers.DateTimeField(source="expected.at", allow_null=True)
    expected_early = serializers.DateTimeField(source="expected.early", allow_null=True)
    expected_late = serializers.DateTimeField(source="expected.late", allow_null=True)
    expected_basis = serializers.CharField(source="expected.basis")
    core_hours_used = serializers.FloatField()
    core_hours_requested = serializers.FloatField(allow_null=True)
    located = serializers.BooleanField(source="is_located", allow_null=True)
    jobs_in_part = serializers.IntegerField(
        source="in_part.jobs", help_text="Jobs that completed with a part of their events."
    )
    events_not_produced = serializers.IntegerField(
        source="in_part.events_missing",
        help_text="How many events these jobs lack: an estimate until their arrays have finished.",
    )
    accepted = serializers.SerializerMethodField()

    @extend_schema_field(AcceptanceReader(allow_null=True))
    def get_accepted(self, stage: StageNow) -> dict[str, Any] | None:
        return AcceptanceReader(stage).data if stage.acceptance else None


class PointStageReader(serializers.Serializer[PointStage]):
    """The jobs of a stage at one point of a parameter scan."""

    stage = serializers.CharField()
    output_dataset = serializers.CharField()
    jobs_requested = serializers.IntegerField(source="requested_jobs", allow_null=True)
    done = serializers.IntegerField(source="completed")
    failed = serializers.IntegerField()
    in_scheduler = serializers.IntegerField()


class PointReader(serializers.Serializer[PointProgress]):
    """A point of a parameter scan, with the jobs that the portal submitted."""

    number = serializers.IntegerField(source="point.number")
    values = serializers.DictField(source="point.values", child=serializers.CharField())
    stages = PointStageReader(many=True)


class ProgressReader(serializers.Serializer[RequestNow]):
    """The progress of a request.

    `as_of` is the time of the data on finished jobs, `queue_as_of` that on queued and running ones.
    `expected_end` comes from the stored forecast of the request; if it is null, `expected_basis` is
    the reason.
    """

    request = serializers.CharField(source="request.key")
    state = serializers.CharField(source="request.state")
    as_of = serializers.DateTimeField(allow_null=True)
    queue_as_of = serializers.DateTimeField(allow_null=True)
    clusters_not_queried = serializers.ListField(
        source="queue_unknown", child=serializers.CharField()
    )
    expected_end = serializers.DateField(source="forecast.columns.expected_end", allow_null=True)
    expected_early = serializers.DateField(
        source="forecast.columns.expected_end_early", allow_null=True
    )
    expected_late = serializers.DateField(
        source="forecast.columns.expected_end_late", allow_null=True
    )
    expected_basis = serializers.CharField(source="forecast.basis")
    expected_as_of = serializers.DateTimeField(source="forecast.at", allow_null=True)
    stages = StageProgressReader(many=True)
    points = PointReader(many=True, help_text="Of a parameter scan; empty without one.")


class ProgressViewSet(OfRequests):
    """The progress of requests."""

    serializer_class: Any = ProgressReader

    def retrieve(self, request: ApiRequest, key: str) -> Response:
        """Return the progress of a request, stage by stage."""
        return Response(ProgressReader(progress_now(self.get_object(), at=timezone.now())).data)


class RequestReportReader(serializers.Serializer[Any]):
    """The report. `sha256` is null while the request is open, as the report may still change."""

    sha256 = serializers.CharField(allow_null=True)
    report = serializers.JSONField()


class RequestReportViewSet(OfRequests):
    """Production reports of requests."""

    serializer_class = RequestReportReader

    def retrieve(self, request: ApiRequest, key: str) -> Response:
        """Return the production report of a request.

        It is current while the request is open, and frozen once it is closed.
        """
        production_request = self.get_object()
        kept = ProductionReport.objects.filter(request=production_request).first()
        if kept:
            content = read_frozen(kept)
        else:
            content = report_of(production_request, at=timezone.now())
        return Response(
            RequestReportReader({"sha256": kept.sha256 if kept else None, "report": content}).data
        )


class WeeklyReportReader(serializers.ModelSerializer[WeeklyReport]):
    """The report of an experiment on one week, Monday to Sunday in UTC. It never changes."""

    experiment = serializers.CharField(source="experiment.key")
    week = serializers.CharField(help_text="As ISO 8601 writes it: 2026-W47.")
    content = serializers.JSONField()

    class Meta:
        model = WeeklyReport
        fields = ("id", "experiment", "week", "monday", "frozen_at", "content")
        read_only_fields = fields


class WeeklyReports(django_filters.FilterSet):
    """Reports of an experiment, or of a week."""

    experiment = django_filters.CharFilter(
        field_name="experiment__key", help_text="Key of the experiment."
    )
    monday = DayFilter()

    class Meta:
        model = WeeklyReport
        fields = ("experiment", "monday")


class WeekQuery(serializers.Serializer[Any]):
    """A week."""

    week = serializers.CharField(help_text="The week as ISO 8601 writes it: 2026-W47.")

    def validate_week(self, week: str) -> date:
        """Return the first day of the week."""
        try:
            return first_day(week)
        except ValueError as error:
            raise serializers.ValidationError(str(error)) from error


class CampaignWeekQuery(WeekQuery):
    """A week, and a campaign."""

    experiment = serializers.CharField(max_length=32, help_text="Key of the experiment.")
    name = serializers.CharField(max_length=64, help_text="Name of the campaign.")


class SummedWeekReader(serializers.Serializer[SummedWeek]):
    """A week of several experiments, or of a campaign, Monday to Sunday in UTC."""

    title = serializers.CharField()
    week = serializers.CharField(help_text="As ISO 8601 writes it: 2026-W47.")
    monday = serializers.DateField()
    as_of = serializers.DateTimeField(
        source="frozen_at",
        help_text="When the newest of the reports was frozen; of a campaign, the time of the call.",
    )
    content = serializers.JSONField()


class WeeklyReportViewSet(ReadOnlyModelViewSet[WeeklyReport], ApiViewSet[WeeklyReport]):
    """Weekly reports of experiments, newest first."""

    serializer_class = WeeklyReportReader
    filterset_class = WeeklyReports

    def get_queryset(self) -> QuerySet[WeeklyReport]:
        reports = WeeklyReport.objects.visible_to(self.request.user).select_related("experiment")
        return reports.order_by("-pk")

    @extend_schema(parameters=[WeekQuery], responses=SummedWeekReader, filters=False)
    @action(detail=False, url_path="all", filterset_class=None, pagination_class=None)
    def all_experiments(self, request: ApiRequest) -> Response:
        """Return the reports of a week together, of all experiments that you can see.

        404 if there is no report of this week.
        """
        query = checked_data(WeekQuery(data=request.query_params))
        summed = week_of_experiments(request.user, monday=query["week"])
        if summed is None:
            raise Http404
        return Response(SummedWeekReader(summed).data)

    @extend_schema(parameters=[CampaignWeekQuery], responses=SummedWeekReader, filters=False)
    @action(detail=False, filterset_class=None, pagination_class=None)
    def campaign(self, request: ApiRequest) -> Response:
        """Return a week of a campaign: its jobs and requests as of now.

        404 if you can see no request of the campaign, or if the week has not begun.
        """
        query = checked_data(CampaignWeekQuery(data=request.query_params))
        summed = week_of_campaign(
            request.user,
            experiment=query["experiment"],
            name=query["name"],
            monday=query["week"],
            at=timezone.now(),
        )
        if summed is None:
            raise Http404
        return Response(SummedWeekReader(summed).data)
