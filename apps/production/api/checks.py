"""Checks and estimate of content in the API; nothing is saved."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.accounts.api import ApiRequest, ApiView
from apps.accounts.permissions import scope_of
from apps.core.api.input import valid
from apps.core.errors import NotAllowed
from apps.production.api.serializers import NewRequestWriter
from apps.production.domain.checks import Severity
from apps.production.domain.checks.report import CheckReport, check_report


class RangeReader(serializers.Serializer[Any]):
    """A figure that is not certain: half of what is known lies between low and high."""

    low = serializers.FloatField()
    mid = serializers.FloatField()
    high = serializers.FloatField()


def _range(words: str) -> RangeReader:
    return RangeReader(allow_null=True, help_text=words)


class StageEstimateReader(serializers.Serializer[Any]):
    name = serializers.CharField()
    past_jobs = serializers.IntegerField(help_text="Completed jobs that the figures rest on; 0: no past jobs.")
    requests = serializers.ListField(child=serializers.CharField(), help_text="Whose jobs those are.")
    alike = serializers.CharField(help_text="In what those jobs are alike.")
    scaled = serializers.BooleanField(help_text="Whether times are scaled by events a job.")
    wall_seconds = _range("Of one job.")
    memory_bytes = _range("Of one job.")
    core_seconds = _range("Of all jobs, failed attempts included.")
    days = _range("At the pace of past jobs.")
    disk_bytes = _range("Of the output.")
    disk_basis = serializers.CharField()


class EstimateReader(serializers.Serializer[Any]):
    """What a request will take; a sum is null unless every stage has its part."""

    past_jobs = serializers.IntegerField()
    without = serializers.ListField(child=serializers.CharField(), help_text="Stages without past jobs.")
    core_seconds = _range("Of all stages.")
    disk_bytes = _range("Of all outputs.")
    days = _range("One stage after the other.")
    begins = serializers.ListField(
        child=serializers.DateField(),
        allow_null=True,
        help_text="Earliest, likeliest and latest day on which it is expected to begin; null where that is not known.",
    )
    finish = serializers.ListField(
        child=serializers.DateField(),
        allow_null=True,
        help_text="Earliest, likeliest and latest day, from when it begins; where that is null, if it began today.",
    )
    stages = StageEstimateReader(many=True)


class FixReader(serializers.Serializer[Any]):
    text = serializers.CharField(source="label")
    values = serializers.DictField(child=serializers.JSONField(), help_text="New values by the paths of their fields.")


class FindingReader(serializers.Serializer[Any]):
    rule = serializers.CharField()
    severity = serializers.ChoiceField(choices=Severity.choices)
    blocks = serializers.BooleanField(help_text="Whether it cannot be submitted like this.")
    path = serializers.CharField(help_text="Such as `stages.0.memory_bytes`.")
    message = serializers.CharField()
    fix = FixReader(allow_null=True)


class CheckedReader(serializers.Serializer[Any]):
    """What the checks find, gravest first, and the estimate."""

    findings = FindingReader(many=True)
    estimate = EstimateReader()


_REFUSALS = {
    400: OpenApiResponse(description="Problems by field path: this cannot be read."),
    403: OpenApiResponse(description="You see nothing of this experiment."),
}


class CheckRequest(ApiView):
    """Asks all checks about content."""

    @extend_schema(operation_id="requests_check", request=NewRequestWriter, responses={200: CheckedReader, **_REFUSALS})
    def post(self, request: ApiRequest) -> Response:
        """Check and estimate a request that is not saved by this."""
        return Response(CheckedReader(_checked(request)).data)


class EstimateRequest(ApiView):
    """Estimates content."""

    @extend_schema(
        operation_id="requests_estimate", request=NewRequestWriter, responses={200: EstimateReader, **_REFUSALS}
    )
    def post(self, request: ApiRequest) -> Response:
        """Estimate a request that is not saved by this, from past jobs of its stages."""
        return Response(EstimateReader(_checked(request).estimate).data)


def _checked(request: ApiRequest) -> CheckReport:
    sent = valid(NewRequestWriter(data=request.data))
    experiment = sent.validated_data["experiment"]
    if not scope_of(request.user).sees(experiment.pk):
        raise NotAllowed(f"Only members of {experiment} and the OPG may check its requests.")
    return check_report(sent.content(), experiment=experiment, at=timezone.now())
