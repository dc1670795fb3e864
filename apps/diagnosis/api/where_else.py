"""Which jobs wrote a line, and which lines are new, in the API."""

from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.accounts.api import ApiRequest, ApiView
from apps.core.api.input import checked_data
from apps.core.api.moments import MomentField
from apps.core.errors import InvalidFields
from apps.diagnosis.domain.groups.where_else import hash_line
from apps.jobs.models import Job
from apps.search.domain.new_lines import NewLine, new_lines
from apps.search.domain.where_else import (
    Hour,
    LineTrait,
    Occurrences,
    TraitComparison,
    compare,
    count_occurrences,
    newest_jobs,
)

MONTH = timedelta(days=30)
DAY = timedelta(days=1)
MOST_LINES = 500


class LineQuery(serializers.Serializer[Any]):
    """A line, and the start of the period."""

    line = serializers.CharField(
        max_length=1_000,
        required=False,
        help_text="A line of a log; its numbers, paths and IDs are ignored.",
    )
    template = serializers.RegexField(
        r"\A[0-9a-f]{16}\Z", required=False, help_text="Instead of a line: the template of a line."
    )
    since = MomentField(required=False, help_text="Default: 30 days ago.")
    stage = serializers.CharField(max_length=64, required=False)
    limit = serializers.IntegerField(min_value=1, max_value=500, default=100, required=False)


class LineHourSerializer(serializers.Serializer[Hour]):
    """Jobs with the line that ended in an hour."""

    start = serializers.DateTimeField()
    failed = serializers.IntegerField()
    completed = serializers.IntegerField()


class TraitSerializer(serializers.Serializer[LineTrait]):
    """A value that failed jobs with the line share."""

    attribute = serializers.CharField(help_text="site, host, release, experiment or CPU model.")
    value = serializers.CharField()
    jobs = serializers.IntegerField()
    share = serializers.FloatField()
    expected = serializers.FloatField(help_text="Share among failed jobs of the same stages.")
    lift = serializers.FloatField()
    interval = serializers.SerializerMethodField()
    stands_out = serializers.BooleanField()

    def get_interval(self, trait: LineTrait) -> list[float]:
        """Return the bounds of the 95 % interval of the lift."""
        return [trait.low, trait.high]


class WhereElseSerializer(serializers.Serializer[Any]):
    """Jobs whose logs were read and have the line."""

    template = serializers.CharField()
    text = serializers.CharField()
    failed = serializers.IntegerField()
    failed_of = serializers.IntegerField(help_text="Failed jobs of the same stages and days.")
    completed = serializers.IntegerField()
    completed_of = serializers.IntegerField()
    comes_with_failure = serializers.BooleanField()
    first_seen = serializers.DateTimeField(allow_null=True)
    hours = LineHourSerializer(many=True)
    traits = TraitSerializer(many=True)
    jobs = serializers.ListField(
        child=serializers.IntegerField(), help_text="Keys of the newest jobs, newest first."
    )


class WhereElseView(ApiView):
    """Where else a line was written."""

    @extend_schema(
        parameters=[LineQuery], responses=WhereElseSerializer, operation_id="where_else_retrieve"
    )
    def get(self, request: ApiRequest) -> Response:
        """Return which jobs that you may see have a line in their logs, and what they share."""
        query = checked_data(LineQuery(data=request.query_params))
        if query.get("template"):
            line_hash = int(query["template"], 16)
        else:
            line_hash = hash_line(query.get("line", ""))
        if not line_hash:
            raise InvalidFields({"line": ["Give a line with words."]})
        since: datetime = query.get("since") or timezone.now() - MONTH
        stages = [query["stage"]] if query.get("stage") else []
        occurrences = count_occurrences(line_hash, user=request.user, since=since, stages=stages)
        comparison = (
            compare(occurrences, user=request.user)
            if occurrences.failed
            else TraitComparison(0, 0, ())
        )
        newest = [key for _, key in newest_jobs(occurrences, limit=query["limit"])]
        visible = set(
            Job.objects.visible_to(request.user).filter(pk__in=newest).values_list("pk", flat=True)
        )
        jobs = [key for key in newest if key in visible]
        return Response(WhereElseSerializer(_answer(line_hash, occurrences, comparison, jobs)).data)


def _answer(
    line_hash: int, occurrences: Occurrences, comparison: TraitComparison, jobs: list[int]
) -> dict[str, Any]:
    return {
        "template": f"{line_hash:016x}",
        "text": occurrences.templates[0].text if occurrences.templates else "",
        "failed": occurrences.failed,
        "failed_of": occurrences.failed_of,
        "completed": occurrences.completed,
        "completed_of": occurrences.completed_of,
        "comes_with_failure": occurrences.comes_with_failure,
        "first_seen": occurrences.first_seen,
        "hours": occurrences.hours,
        "traits": comparison.traits,
        "jobs": jobs,
    }


class NewLinesQuery(serializers.Serializer[Any]):
    """The start of the period."""

    since = MomentField(required=False, help_text="Default: 24 hours ago.")
    completed = serializers.BooleanField(
        default=False, required=False, help_text="With lines that completed jobs have too."
    )


class NewLineSerializer(serializers.Serializer[NewLine]):
    """A line that no log had before."""

    template = serializers.CharField(source="number")
    text = serializers.CharField(source="template.text")
    experiments = serializers.ListField(child=serializers.CharField())
    failed = serializers.IntegerField()
    completed = serializers.IntegerField()
    first_seen_at = serializers.DateTimeField(source="template.first_seen_at")
    spread_at = serializers.DateTimeField(
        allow_null=True,
        help_text="When a job of a second site wrote it, if within an hour.",
    )


class NewLinesView(ApiView):
    """Lines of failed jobs that no log had before."""

    @extend_schema(
        parameters=[NewLinesQuery],
        responses=NewLineSerializer(many=True),
        operation_id="new_lines_list",
    )
    def get(self, request: ApiRequest) -> Response:
        """Return at most 500 lines, those that jobs of two sites wrote within an hour first."""
        query = checked_data(NewLinesQuery(data=request.query_params))
        lines = new_lines(
            user=request.user,
            since=query.get("since") or timezone.now() - DAY,
            in_completed_jobs=query["completed"],
        )
        first: Any = lines[:MOST_LINES]
        return Response(NewLineSerializer(first, many=True).data)
