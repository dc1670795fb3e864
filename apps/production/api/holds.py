"""Holds in the API: list, place and lift."""

from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.viewsets import ReadOnlyModelViewSet

from apps.accounts.api import ApiViewSet, command
from apps.core.api.conditional import Guarded
from apps.production.api.serializers import ExperimentField
from apps.production.domain import holds
from apps.production.domain.reasons import MAX_REASON
from apps.production.models import Hold


class HoldReader(serializers.ModelSerializer[Hold]):
    level = serializers.SerializerMethodField()
    what = serializers.SerializerMethodField()
    experiment = serializers.CharField(source="experiment.key", allow_null=True, default=None)
    request = serializers.CharField(source="stage.request.key", allow_null=True, default=None)
    stage = serializers.SerializerMethodField()
    by = serializers.CharField(source="author")

    class Meta:
        model = Hold
        fields = [
            "id",
            "level",
            "what",
            "experiment",
            "request",
            "stage",
            "reason",
            "by",
            "at",
            "lifted_at",
        ]

    def get_level(self, hold: Hold) -> str:
        return holds.hold_level(hold)

    def get_what(self, hold: Hold) -> str:
        return holds.hold_subject(hold)

    def get_stage(self, hold: Hold) -> int | None:
        return hold.stage.position + 1 if hold.stage else None


class HoldWriter(serializers.Serializer[Any]):
    """Scope of the hold: a stage (with its request), an experiment or, with neither, everything."""

    experiment = ExperimentField(required=False, allow_null=True, default=None)
    request = serializers.CharField(required=False, allow_blank=True, default="", max_length=24)
    stage = serializers.IntegerField(
        required=False, allow_null=True, default=None, min_value=1, max_value=10_000
    )
    reason = serializers.CharField(max_length=MAX_REASON)


class LiftWriter(serializers.Serializer[Any]):
    reason = serializers.CharField(
        required=False, allow_blank=True, default="", max_length=MAX_REASON
    )


class HoldViewSet(Guarded, ReadOnlyModelViewSet[Hold], ApiViewSet[Hold]):
    """Active holds that you can see."""

    serializer_class = HoldReader

    def get_queryset(self) -> QuerySet[Hold]:
        return holds.visible_holds(self.request.user)

    @command(HoldWriter, HoldReader, code=201, allowed=lambda user, _: holds.may_hold_some(user))
    def create(self, *, request: str, stage: int | None, **fields: Any) -> Hold:
        """Place a hold, so that no new jobs start. OPG approvers and shifters only."""
        named = holds.stage_named(self.request.user, key=request, number=stage)
        return holds.place_hold(stage=named, **fields)

    @command(LiftWriter, HoldReader, allowed=holds.may_lift)
    def lift(self, hold: Hold, **fields: Any) -> Hold:
        """Lift a hold: jobs can start again."""
        return holds.lift_hold(hold=hold, **fields)
