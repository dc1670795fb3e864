"""Checks and estimates of unsaved requests in the API."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.accounts.api import ApiRequest, ApiView
from apps.core.api.input import valid
from apps.production.api.serializers import NewRequestWriter
from apps.production.domain.checks import Severity
from apps.production.domain.checks.report import CheckReport, check_report


class RangeReader(serializers.Serializer[Any]):
    """An uncertain figure: half of the known values lie between `low` and `high`."""

    low = serializers.FloatField()
    mid = serializers.FloatField()
    high = serializers.FloatField()


def _range(help_text: str) -> RangeReader:
    return RangeReader(allow_null=True, help_text=help_text)


class StageEstimateReader(serializers.Serializer[Any]):
    name = serializers.CharField()
    past_jobs = serializers.IntegerField(
        help_text="Completed jobs that the figures are based on; 0: none."
    )
    requests = serializers.ListField(
        child=serializers.CharField(), help_text="Requests of those jobs."
    )
    alike = serializers.CharField(help_text="What those jobs have in common.")
    scaled = serializers.BooleanField(help_text="Whether times are scaled by events per job.")
    wall_seconds = _range("Per job.")
    memory_bytes = _range("Per job.")
    core_seconds = _range("All jobs, including failed attempts.")
    exceeds_limit = serializers.BooleanField(
        help_text=(
            "Whether nearly all past jobs took longer than the wall time; `core_seconds` then "
            "counts jobs until it, and `days` is null."
        )
    )
    days = _range("At the rate of past jobs.")
    disk_bytes = _range("Size of the output.")
    disk_basis = serializers.CharField()


class EstimateReader(serializers.Serializer[Any]):
    """Cost of a request. A total is null unless it is known for every stage."""

    past_jobs = serializers.IntegerField()
    without = serializers.ListField(
        child=serializers.CharField(), help_text="Stages without past jobs."
    )
    core_seconds = _range(
        "All stages. A stage without past jobs counts with its time limit if others have past jobs."
    )
    disk_bytes = _range("All outputs.")
    days = _range("Stages run one after the other.")
    begins = serializers.ListField(
        child=serializers.DateField(),
        allow_null=True,
        help_text="Expected start: earliest, likely and latest day; null if unknown.",
    )
    finish = serializers.ListField(
        child=serializers.DateField(),
        allow_null=True,
        help_text=(
            "Expected end: earliest, likely and latest day; if `begins` is null, for a start today."
        ),
    )
    priority_class = serializers.CharField(
        help_text="The class that `begins` and `finish` were computed for."
    )
    assumption = serializers.CharField(
        help_text="What they assume, such as `if approved now`; empty if nothing."
    )
    stages = StageEstimateReader(many=True)


class FixReader(serializers.Serializer[Any]):
    text = serializers.CharField(source="label")
    values = serializers.DictField(
        child=serializers.JSONField(), help_text="New values by field path."
    )


class FindingReader(serializers.Serializer[Any]):
    rule = serializers.CharField()
    severity = serializers.ChoiceField(choices=Severity.choices)
    blocks = serializers.BooleanField(help_text="Whether it prevents submission.")
    path = serializers.CharField(help_text="Such as `stages.0.memory_bytes`.")
    message = serializers.CharField()
    fix = FixReader(allow_null=True)


class CheckedReader(serializers.Serializer[Any]):
    """Findings, most severe first, and the estimate."""

    findings = FindingReader(many=True)
    estimate = EstimateReader()


_REFUSALS = {400: OpenApiResponse(description="The body is invalid: problems by field path.")}


class CheckRequest(ApiView):
    @extend_schema(
        operation_id="requests_check",
        request=NewRequestWriter,
        responses={200: CheckedReader, **_REFUSALS},
    )
    def post(self, request: ApiRequest) -> Response:
        """Check and estimate a request without saving it."""
        return Response(CheckedReader(_check_request(request)).data)


class EstimateRequest(ApiView):
    @extend_schema(
        operation_id="requests_estimate",
        request=NewRequestWriter,
        responses={200: EstimateReader, **_REFUSALS},
    )
    def post(self, request: ApiRequest) -> Response:
        """Estimate a request from past jobs, without saving it."""
        return Response(EstimateReader(_check_request(request).estimate).data)


def _check_request(request: ApiRequest) -> CheckReport:
    sent = valid(NewRequestWriter(data=request.data, context={"request": request}))
    return check_report(
        sent.content(), experiment=sent.validated_data["experiment"], at=timezone.now()
    )
