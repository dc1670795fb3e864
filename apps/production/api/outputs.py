"""Reports on a stage in the API: counts of its jobs, and the location of its outputs."""

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.accounts.api import ApiRequest, ApiView
from apps.production.domain.outputs import counts
from apps.production.models import OutputReport, Request, Stage, StageLocation


class OutputWriter(serializers.Serializer[Any]):
    """Input and output of one job, or of several counted together.

    Sending a `key` again replaces its report.
    """

    key = serializers.CharField(
        required=False, allow_blank=True, default="", help_text="Required. For example the job id."
    )
    files_in = serializers.IntegerField(required=False, allow_null=True, default=None)
    events_in = serializers.IntegerField(required=False, allow_null=True, default=None)
    files_out = serializers.IntegerField(required=False, allow_null=True, default=None)
    events_out = serializers.IntegerField(required=False, allow_null=True, default=None)


class OutputReader(serializers.ModelSerializer[OutputReport]):
    class Meta:
        model = OutputReport
        fields = ["key", *counts.QUANTITIES, "by", "at"]


class LocatedWriter(serializers.Serializer[Any]):
    note = serializers.CharField(required=False, allow_blank=True, default="")


class LocatedReader(serializers.ModelSerializer[StageLocation]):
    class Meta:
        model = StageLocation
        fields = ["note", "by", "at"]


class StageView(ApiView):
    """A view of one stage, by key of the request and number of the stage."""

    def stage(self) -> Stage:
        visible = Stage.objects.filter(request__in=Request.objects.visible_to(self.request.user))
        position = min(self.kwargs["number"], 10_000) - 1
        stage: Stage = get_object_or_404(
            visible.select_related("request__experiment"),
            request__key=self.kwargs["key"],
            position=position,
        )
        return stage


class Located(StageView):
    @extend_schema(request=LocatedWriter, responses={200: LocatedReader})
    def post(self, request: ApiRequest, key: str, number: int) -> Response:
        """Report that the outputs of the stage are in the catalogue.

        Repeating it changes nothing.
        """
        return Response(
            LocatedReader(
                counts.mark_located(stage=self.stage(), **self.domain_arguments(LocatedWriter))
            ).data
        )
