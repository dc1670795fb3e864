"""Known errors in the API: read, propose and decide changes, import and export YAML."""

from typing import Any, ClassVar

from django.db.models import QuerySet
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.response import Response
from rest_framework.viewsets import ReadOnlyModelViewSet

from apps.accounts.api import ApiRequest, ApiViewSet, command
from apps.accounts.models import User
from apps.core.api.moments import MomentField
from apps.core.errors import NotAllowed
from apps.core.web.turns import one_at_a_time
from apps.diagnosis.domain.known_errors.changes import FIELDS, decide_change, submit_change
from apps.diagnosis.domain.known_errors.exchange import import_known_errors, write_known_errors
from apps.diagnosis.filters import KnownErrorChanges, KnownErrors
from apps.diagnosis.models import KnownError, KnownErrorChange
from apps.diagnosis.permissions import may_edit_catalogue, may_propose_known_errors


class KnownErrorReader(serializers.ModelSerializer[KnownError]):
    experiment = serializers.CharField(
        source="experiment.key", default="", help_text="Applies only to jobs of this experiment."
    )
    link = serializers.CharField(help_text="Ticket, documentation or status page; may be empty.")

    class Meta:
        model = KnownError
        fields: ClassVar[list[str]] = ["id", *FIELDS, "version"]
        read_only_fields = fields


class KnownErrorChangeReader(serializers.ModelSerializer[KnownErrorChange]):
    """A change of a known error; `state` is whether it is applied or waits for approval."""

    class Meta:
        model = KnownErrorChange
        fields: ClassVar[list[str]] = [
            "id",
            "known_error",
            "version",
            "state",
            "values",
            "by",
            "at",
            "reason",
            "decided_by",
            "decided_at",
            "decision",
        ]
        read_only_fields = fields


class KnownErrorChangeWriter(serializers.ModelSerializer[KnownError]):
    """The fields to change; those left out keep their values.

    `base` is the version that you have seen.
    """

    experiment = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=32,
        help_text="Key of the experiment; empty for all.",
    )
    expires_at = MomentField(required=False, allow_null=True, help_text="Disabled after this time.")
    reason = serializers.CharField(max_length=4000, help_text="Why; shown in the history.")
    base = serializers.IntegerField(
        required=False, min_value=0, help_text="Rejected if the current version is another."
    )
    propose = serializers.BooleanField(
        default=False, help_text="Request approval even if you may edit."
    )

    class Meta:
        model = KnownError
        fields: ClassVar[list[str]] = [*FIELDS, "reason", "base", "propose"]
        extra_kwargs: ClassVar[dict[str, dict[str, Any]]] = {
            name: {"required": False} for name in FIELDS
        }


class KnownErrorWriter(KnownErrorChangeWriter):
    """A new known error."""

    class Meta(KnownErrorChangeWriter.Meta):
        fields: ClassVar[list[str]] = ["id", *KnownErrorChangeWriter.Meta.fields]
        extra_kwargs: ClassVar[dict[str, dict[str, Any]]] = {
            **KnownErrorChangeWriter.Meta.extra_kwargs,
            "id": {"validators": []},  # the catalogue says what is wrong with it
        }


class KnownErrorImportWriter(serializers.Serializer[Any]):
    text = serializers.CharField(
        trim_whitespace=False, help_text="YAML in the format of the export."
    )
    reason = serializers.CharField(max_length=4000, required=False, default="", allow_blank=True)
    dry_run = serializers.BooleanField(default=True, help_text="Check only.")


class KnownErrorFaultReader(serializers.Serializer[Any]):
    line = serializers.IntegerField()
    message = serializers.CharField()


class KnownErrorImportReader(serializers.Serializer[Any]):
    """IDs that an import adds and changes; with faults, nothing is stored."""

    added = serializers.ListField(child=serializers.CharField())
    changed = serializers.ListField(child=serializers.CharField())
    unchanged = serializers.ListField(child=serializers.CharField())
    faults = KnownErrorFaultReader(many=True)


class KnownErrorDecisionWriter(serializers.Serializer[Any]):
    reason = serializers.CharField(max_length=4000, required=False, default="", allow_blank=True)


def _may_propose(user: User, _: object) -> None:
    if not may_propose_known_errors(user):
        raise NotAllowed("Only the OPG and liaisons can propose known errors.")


def _may_decide(user: User, _: object) -> None:
    if not may_edit_catalogue(user):
        raise NotAllowed("Only approvers and admins of the OPG can decide on proposals.")


class KnownErrorViewSet(ReadOnlyModelViewSet[KnownError], ApiViewSet[KnownError]):
    """Known errors: patterns of lines, their meaning for a job, and what to do."""

    serializer_class = KnownErrorReader
    filterset_class = KnownErrors
    lookup_value_regex = r"[A-Z0-9-]{1,64}"

    def get_queryset(self) -> QuerySet[KnownError]:
        return KnownError.objects.select_related("experiment").order_by("id")

    @command(KnownErrorWriter, KnownErrorChangeReader, code=201, allowed=_may_propose)
    def create(self, *, base: int | None = None, **values: Any) -> KnownErrorChange:
        """Add a known error: at once for approvers and admins of the OPG, else as a proposal."""
        return _submit(values.pop("id"), 0 if base is None else base, values)

    @command(KnownErrorChangeWriter, KnownErrorChangeReader, allowed=_may_propose)
    def change(
        self, known_error: KnownError, *, base: int | None = None, **values: Any
    ) -> KnownErrorChange:
        """Change a known error: at once for approvers and admins of the OPG, else as a proposal."""
        return _submit(known_error.pk, base, values)

    @extend_schema(responses={(200, "application/yaml"): OpenApiTypes.ANY}, filters=True)
    @action(detail=False, pagination_class=None)
    def export(self, request: ApiRequest) -> HttpResponse:
        """Return the filtered known errors as YAML, in the format of the import."""
        rows = self.filter_queryset(self.get_queryset())
        return HttpResponse(
            write_known_errors(rows), content_type="application/yaml; charset=utf-8"
        )

    @extend_schema(request=KnownErrorImportWriter, responses=KnownErrorImportReader)
    @action(
        detail=False, methods=["post"], url_path="import", url_name="import", pagination_class=None
    )
    @one_at_a_time
    def import_yaml(self, request: ApiRequest) -> Response:
        """Check YAML, or import it: all of it or, with a fault, nothing.

        For users who may not edit known errors, each change becomes a proposal.
        """
        _may_propose(request.user, None)
        done = import_known_errors(**self.domain_arguments(KnownErrorImportWriter))
        return Response(KnownErrorImportReader(done).data)


def _submit(known_error: str, base: int | None, values: dict[str, Any]) -> KnownErrorChange:
    kept = {name: values.pop(name) for name in ("by", "at", "reason", "propose")}
    return submit_change(known_error=known_error, values=values, base=base, **kept)


class KnownErrorChangeViewSet(ReadOnlyModelViewSet[KnownErrorChange], ApiViewSet[KnownErrorChange]):
    """Changes of known errors: their history, and the proposals that wait for approval."""

    serializer_class = KnownErrorChangeReader
    filterset_class = KnownErrorChanges
    lookup_value_regex = r"\d{1,9}"

    def get_queryset(self) -> QuerySet[KnownErrorChange]:
        return KnownErrorChange.objects.order_by("-pk")

    @command(KnownErrorDecisionWriter, KnownErrorChangeReader, allowed=_may_decide)
    def approve(self, change: KnownErrorChange, **decision: Any) -> KnownErrorChange:
        """Approve a change, which takes effect at once. For approvers and admins of the OPG."""
        return decide_change(change=change, approve=True, **decision)

    @command(KnownErrorDecisionWriter, KnownErrorChangeReader, allowed=_may_decide)
    def reject(self, change: KnownErrorChange, **decision: Any) -> KnownErrorChange:
        """Reject a change, with a reason. For approvers and admins of the OPG."""
        return decide_change(change=change, approve=False, **decision)
