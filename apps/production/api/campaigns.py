"""Campaigns in the API."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.accounts.api import ApiRequest, ApiView
from apps.production.domain.campaigns import campaigns_for
from apps.production.models import Request


class CampaignReader(serializers.Serializer[Any]):
    """Totals of the requests of a campaign, without rejected, cancelled and superseded ones."""

    name = serializers.CharField()
    experiment = serializers.CharField(source="experiment_key")
    requests = serializers.IntegerField()
    open = serializers.IntegerField()
    done = serializers.IntegerField(help_text="Fully or partially done.")
    attention = serializers.IntegerField(help_text="Open requests that need attention.")
    jobs = serializers.IntegerField(help_text="Requested jobs of all stages.")
    part_done = serializers.FloatField(
        allow_null=True, help_text="Part of these jobs that has completed, 0 to 1."
    )
    deadline = serializers.DateField(
        allow_null=True, help_text="The next one of the open requests."
    )
    expected_end = serializers.DateField(
        allow_null=True, help_text="The last one of the open requests, if known."
    )


class CampaignsView(ApiView):
    @extend_schema(responses=CampaignReader(many=True))
    def get(self, request: ApiRequest) -> Response:
        """List the campaigns of the requests that you can see, with totals."""
        campaigns: Any = campaigns_for(request.user, Request.objects.visible_to(request.user))
        return Response(CampaignReader(campaigns, many=True).data)
