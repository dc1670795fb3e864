"""Pinning and unpinning a job over the API."""

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from apps.archive.domain.retention import pin_job, unpin_job
from apps.archive.models import ArchivedJob, Pin


class NewPinSerializer(serializers.Serializer[Pin]):
    reason = serializers.CharField(max_length=200)


class PinSerializer(serializers.ModelSerializer[Pin]):
    class Meta:
        model = Pin
        fields = ["by", "reason", "at"]


class PinActions(GenericViewSet[ArchivedJob]):
    """`…/pin/` keeps a job whatever the rules of retention say, `…/unpin/` lets them count again."""

    @extend_schema(request=NewPinSerializer, responses=PinSerializer)
    @action(detail=True, methods=["post"])
    def pin(self, request: Request, pk: str) -> Response:
        wanted = NewPinSerializer(data=request.data)
        wanted.is_valid(raise_exception=True)
        pin = pin_job(job=self.get_object(), by=request.user, reason=wanted.validated_data["reason"], at=timezone.now())
        return Response(PinSerializer(pin).data)

    @extend_schema(request=None, responses={204: None})
    @action(detail=True, methods=["post"])
    def unpin(self, request: Request, pk: str) -> Response:
        unpin_job(job=self.get_object(), by=request.user, at=timezone.now())
        return Response(status=204)
