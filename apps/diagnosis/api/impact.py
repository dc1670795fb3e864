"""The impact of an incident on jobs, in the API."""

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.api import ApiView
from apps.diagnosis.domain.causes.impact.figures import impact_of
from apps.statusboard.models import Incident


class ExcessSerializer(serializers.Serializer[Any]):
    """Failures above the usual number: `value`, and the bounds of its 95 % interval."""

    jobs = serializers.IntegerField(help_text="Exposed jobs with a baseline.")
    failed = serializers.IntegerField()
    expected = serializers.FloatField(
        help_text="Failures at the usual rate of the same stage and site."
    )
    value = serializers.FloatField()
    low = serializers.FloatField()
    high = serializers.FloatField()


class StageImpactSerializer(serializers.Serializer[Any]):
    """A stage of a request; `eligible` jobs are confirmed and have no later attempt."""

    request = serializers.CharField(source="request_key")
    stage = serializers.CharField()
    exposed = serializers.IntegerField()
    failed = serializers.IntegerField()
    confirmed = serializers.IntegerField()
    succeeded = serializers.IntegerField()
    retried = serializers.IntegerField()
    eligible = serializers.IntegerField()
    eligible_core_seconds = serializers.IntegerField()
    delay_seconds = serializers.FloatField(allow_null=True)


class ImpactSerializer(serializers.Serializer[Any]):
    """Exposed jobs that you may see; `counted_at` is null until some are counted."""

    counted_at = serializers.DateTimeField(allow_null=True)
    exposed = serializers.IntegerField(
        help_text="Jobs that need the service and ran during the incident."
    )
    contained = serializers.IntegerField(help_text="Of these, started and ended during it.")
    containing = serializers.IntegerField(help_text="Of these, started before and ended after it.")
    partial: Any = serializers.IntegerField(help_text="Of these, across its start or its end.")
    touching = serializers.IntegerField(
        help_text="Not exposed: ended as it started, or started as it ended."
    )
    unknown = serializers.IntegerField(
        help_text="Ran only after the incident was no longer reported."
    )
    running = serializers.IntegerField(help_text="Running now, while the incident is open.")
    failed = serializers.IntegerField()
    excess = ExcessSerializer(allow_null=True)
    confirmed = serializers.IntegerField(help_text="Failed because of the service, by verdict.")
    succeeded = serializers.IntegerField(help_text="Confirmed, and completed at a later attempt.")
    retried = serializers.IntegerField(help_text="Confirmed, and retried without success so far.")
    eligible = serializers.IntegerField(
        help_text="Confirmed, and not retried. The dry run shows which of them can be retried."
    )
    failed_core_seconds = serializers.IntegerField()
    confirmed_core_seconds = serializers.IntegerField()
    eligible_core_seconds = serializers.IntegerField()
    stages = StageImpactSerializer(many=True)


class ImpactView(ApiView):
    """Return the impact of an incident on jobs."""

    @extend_schema(responses=ImpactSerializer, operation_id="incidents_impact_retrieve")
    def get(self, request: Request, pk: int) -> Response:
        incident = get_object_or_404(Incident, pk=pk)
        return Response(ImpactSerializer(impact_of(incident, self.request.user)).data)
