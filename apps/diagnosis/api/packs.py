"""Experiment packs in the API: versions, check, proposal, decision."""

from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.response import Response
from rest_framework.viewsets import ReadOnlyModelViewSet

from apps.accounts.api import ApiRequest, ApiViewSet, command
from apps.accounts.enums import Role
from apps.accounts.models import User
from apps.accounts.permissions import is_opg, scope_of
from apps.core.errors import NotAllowed
from apps.diagnosis.domain.packs.changes import checked_pack, decide_pack, effect_of, propose_pack
from apps.diagnosis.filters import ExperimentPacks
from apps.diagnosis.models import ExperimentPack
from apps.diagnosis.permissions import may_edit_catalogue


class ExperimentPackReader(serializers.ModelSerializer[ExperimentPack]):
    """A version of a pack. The newest one with the state `applied` is in force."""

    experiment = serializers.CharField(source="experiment.key")

    class Meta:
        model = ExperimentPack
        fields: ClassVar[list[str]] = [
            "id",
            "experiment",
            "version",
            "state",
            "text",
            "by",
            "at",
            "reason",
            "decided_by",
            "decided_at",
            "decision",
        ]
        read_only_fields = fields


class ExperimentPackCheckWriter(serializers.Serializer[Any]):
    text = serializers.CharField(trim_whitespace=False, help_text="The pack as YAML.")


class ExperimentPackWriter(ExperimentPackCheckWriter):
    reason = serializers.CharField(max_length=4000, help_text="Why; the approver reads it.")


class ExperimentPackEffectReader(serializers.Serializer[Any]):
    """The changes that approving the pack would make."""

    added = serializers.ListField(child=serializers.CharField())
    changed = serializers.ListField(child=serializers.CharField())
    removed = serializers.ListField(child=serializers.CharField())
    phases = serializers.IntegerField()
    levels = serializers.IntegerField()


class ExperimentPackDecisionWriter(serializers.Serializer[Any]):
    reason = serializers.CharField(max_length=4000, required=False, default="", allow_blank=True)


def _may_propose(user: User, _: object) -> None:
    if not is_opg(user) and not scope_of(user).has_anywhere(Role.LIAISON):
        raise NotAllowed("Only the OPG and liaisons can propose packs.")


def _may_decide(user: User, _: object) -> None:
    if not may_edit_catalogue(user):
        raise NotAllowed("Only approvers and admins of the OPG can decide on packs.")


class ExperimentPackViewSet(ReadOnlyModelViewSet[ExperimentPack], ApiViewSet[ExperimentPack]):
    """Versioned packs of experiments: known errors, exit codes, phase and level markers."""

    serializer_class = ExperimentPackReader
    filterset_class = ExperimentPacks
    lookup_value_regex = r"\d{1,9}"

    def get_queryset(self) -> QuerySet[ExperimentPack]:
        return (
            ExperimentPack.objects.visible_to(self.request.user)
            .select_related("experiment")
            .order_by("-pk")
        )

    @command(ExperimentPackWriter, ExperimentPackReader, code=201, allowed=_may_propose)
    def create(self, **fields: Any) -> ExperimentPack:
        """Propose a pack as the next version for its experiment.

        Errors in the text are reported with their lines.
        """
        return propose_pack(**fields)

    @extend_schema(request=ExperimentPackCheckWriter, responses=ExperimentPackEffectReader)
    @action(detail=False, methods=["post"], pagination_class=None)
    def check(self, request: ApiRequest) -> Response:
        """Check a pack and return what it would change. Stores nothing."""
        _may_propose(request.user, None)
        fields = self.domain_arguments(ExperimentPackCheckWriter)
        pack = checked_pack(fields["text"], by=request.user)
        return Response(ExperimentPackEffectReader(effect_of(pack)).data)

    @command(ExperimentPackDecisionWriter, ExperimentPackReader, allowed=_may_decide)
    def approve(self, pack: ExperimentPack, **decision: Any) -> ExperimentPack:
        """Approve a pack, which takes effect at once. For approvers and admins of the OPG."""
        return decide_pack(proposed=pack, approve=True, **decision)

    @command(ExperimentPackDecisionWriter, ExperimentPackReader, allowed=_may_decide)
    def reject(self, pack: ExperimentPack, **decision: Any) -> ExperimentPack:
        """Reject a pack, with a reason. For approvers and admins of the OPG."""
        return decide_pack(proposed=pack, approve=False, **decision)
