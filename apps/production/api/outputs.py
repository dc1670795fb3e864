"""What jobs and people report of a stage, by the API: files and events, and that its outputs are located."""

from typing import Any

from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request as ApiRequest
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.core.api.input import checked_data
from apps.production.domain.outputs import counts
from apps.production.models import OutputReport, Request, Stage, StageLocation


class OutputWriter(serializers.Serializer[Any]):
    """What one job has read and written, or one who counts for many. The same `key` again replaces what it said."""

    key = serializers.CharField(required=False, allow_blank=True, default="", help_text="Such as the job's id; needed.")
    files_in = serializers.IntegerField(required=False, allow_null=True, default=None)
    events_in = serializers.IntegerField(required=False, allow_null=True, default=None)
    files_out = serializers.IntegerField(required=False, allow_null=True, default=None)
    events_out = serializers.IntegerField(required=False, allow_null=True, default=None)


class OutputReader(serializers.ModelSerializer[OutputReport]):
    class Meta:
        model = OutputReport
        fields = ["key", *counts.QUANTITIES, "by", "at"]


class LocatedWriter(serializers.Serializer[Any]):
    """Where the outputs are, if there is something to say."""

    note = serializers.CharField(required=False, allow_blank=True, default="")


class LocatedReader(serializers.ModelSerializer[StageLocation]):
    class Meta:
        model = StageLocation
        fields = ["note", "by", "at"]


class Outputs(APIView):
    """Files and events of a stage, as its jobs report them."""

    @extend_schema(request=OutputWriter, responses={200: OutputReader, 201: OutputReader})
    def post(self, request: ApiRequest, key: str, number: int) -> Response:
        """Report what one job has read and written; 201 for a key that is new, 200 for one that is replaced."""
        stage, given = _stage(request, key, number), checked_data(OutputWriter(data=request.data))
        report, created = counts.report_output(
            stage=stage,
            key=given.pop("key"),
            counts=given,
            by=request.user,  # type: ignore[arg-type]
            at=timezone.now(),
        )
        code = status.HTTP_201_CREATED if created else status.HTTP_200_OK
        return Response(OutputReader(report).data, status=code)


class Located(APIView):
    """Whether the outputs of a stage are in the catalogue."""

    @extend_schema(request=LocatedWriter, responses={200: LocatedReader})
    def post(self, request: ApiRequest, key: str, number: int) -> Response:
        """Say that they are; saying it again changes nothing."""
        stage, given = _stage(request, key, number), checked_data(LocatedWriter(data=request.data))
        location = counts.say_located(stage=stage, by=request.user, at=timezone.now(), note=given["note"])  # type: ignore[arg-type]
        return Response(LocatedReader(location).data)


def _stage(request: ApiRequest, key: str, number: int) -> Stage:
    visible = Stage.objects.filter(request__in=Request.objects.visible_to(request.user))
    found: Stage = get_object_or_404(
        visible.select_related("request__experiment"), request__key=key, position=min(number, 10_000) - 1
    )
    return found
