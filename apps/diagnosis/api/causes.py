"""Common causes of many failures in the API."""

from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.accounts.api import ApiRequest, ApiView
from apps.core.api.input import checked_data
from apps.core.api.moments import MomentField
from apps.core.web.turns import one_at_a_time
from apps.diagnosis.domain.causes.common.causes import (
    MOST_DAYS,
    CommonCause,
    causes_between,
    newest_causes,
)
from apps.jobs.domain.records.conversion import hour_of

WEEK = timedelta(days=7)


class CausesQuery(serializers.Serializer[Any]):
    """The period: jobs that ended in [since, until)."""

    since = MomentField(required=False, help_text="Default: seven days before `until`.")
    until = MomentField(
        required=False, help_text=f"Default: now. At most {MOST_DAYS} days after `since`."
    )


class CommonCauseSerializer(serializers.Serializer[CommonCause]):
    """A value of an attribute whose jobs failed more often than expected."""

    attribute = serializers.CharField(
        help_text="site, host, host and time, CPU model, release, stage, user, hour or service."
    )
    value = serializers.CharField()
    jobs = serializers.IntegerField(
        help_text="Jobs with this value, except those of stronger causes."
    )
    failed = serializers.IntegerField()
    expected = serializers.FloatField()
    excess = serializers.FloatField()
    interval = serializers.SerializerMethodField()
    other_jobs = serializers.IntegerField()
    other_failed = serializers.IntegerField()

    def get_interval(self, cause: CommonCause) -> list[float]:
        """Return the bounds of the 95 % interval of the excess."""
        return [cause.low, cause.high]


class CausesSerializer(serializers.Serializer[Any]):
    """Causes of the failures of a period, most excess failures first."""

    at = serializers.DateTimeField(source="analysed_at", help_text="Time of the analysis.")
    jobs = serializers.IntegerField()
    failed = serializers.IntegerField()
    causes = CommonCauseSerializer(source="found", many=True)


class CausesView(ApiView):
    """What the failures of many jobs have in common."""

    @extend_schema(
        parameters=[CausesQuery], responses=CausesSerializer, operation_id="causes_retrieve"
    )
    @one_at_a_time
    def get(self, request: ApiRequest) -> Response:
        """Return the causes of failures in a period, for jobs that you may see.

        The cause with most failures beyond the expected comes first. Without a period, return the
        newest stored analysis of seven days, or analyse the seven days before the last full hour.
        """
        period = checked_data(CausesQuery(data=request.query_params))
        now = timezone.now()
        if period:
            until: datetime = period.get("until") or now.replace(second=0, microsecond=0)
            since: datetime = period.get("since") or until - WEEK
            causes = causes_between(since=since, until=until, user=request.user, at=now)
        else:
            until = hour_of(now)
            newest, _ = newest_causes(until=until, length=WEEK, user=request.user, at=now)
            causes = newest or causes_between(
                since=until - WEEK, until=until, user=request.user, at=now
            )
        return Response(CausesSerializer(causes).data)
