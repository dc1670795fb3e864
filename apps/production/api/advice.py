"""Advice on whether to submit jobs now, for scripts and launchers."""

from datetime import timedelta
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.api import ApiView
from apps.core.errors import InvalidFields
from apps.production.domain.advice import LONGEST, services_of_stage, submit_advice

_LONGEST_HOURS = LONGEST // timedelta(hours=1)


class AdviceReasonSerializer(serializers.Serializer[Any]):
    submit = serializers.ChoiceField(
        choices=["yes", "no", "wait"], help_text="What this reason alone advises."
    )
    text = serializers.CharField()
    until = serializers.DateTimeField(allow_null=True)
    service = serializers.CharField(source="service.slug", default=None, allow_null=True)


class AdviceSerializer(serializers.Serializer[Any]):
    """Advice on submitting jobs. `until` is the planned end of a wait; null if none or unknown."""

    submit = serializers.ChoiceField(choices=["yes", "no", "wait"])
    until = serializers.DateTimeField(allow_null=True)
    reasons = AdviceReasonSerializer(many=True)


class AdviceView(ApiView):
    """Return whether to submit jobs now.

    The answer is no while a needed service is down, and wait if jobs would run into maintenance.
    """

    @extend_schema(
        responses=AdviceSerializer,
        parameters=[
            OpenApiParameter(
                "stage", str, description="Name or kind of a stage. Default: any service counts."
            ),
            OpenApiParameter(
                "length", float, description="Length of the jobs in hours. Default: 0."
            ),
        ],
    )
    def get(self, request: Request) -> Response:
        stage = request.query_params.get("stage", "")
        try:
            hours = float(request.query_params.get("length") or 0)
        except ValueError:
            hours = -1
        if not 0 <= hours <= _LONGEST_HOURS:
            raise InvalidFields({"length": [f"Enter hours from 0 to {_LONGEST_HOURS}."]})
        user = self.request.user
        advice = submit_advice(
            user=user,
            at=timezone.now(),
            length=timedelta(hours=hours),
            services=services_of_stage(stage, user) if stage else None,
        )
        return Response(AdviceSerializer(advice).data)
