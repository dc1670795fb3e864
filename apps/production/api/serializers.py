"""Requests in the API: readers and writers. Writers only parse; domain functions save."""

from dataclasses import replace
from functools import cached_property
from typing import Any, cast

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.accounts.models import Experiment
from apps.production.domain.checks.rules.shape import unknown_service
from apps.production.domain.content.model import MAX_STAGES, STAGE_FIELDS, RequestContent, StageContent, without_nulls
from apps.production.domain.reasons import MAX_REASON
from apps.production.domain.types.arguments import Argument
from apps.production.domain.types.declaration import Workflow
from apps.production.domain.types.fields import CORE, REQUEST
from apps.production.domain.types.versions import newest_versions, visible_types, workflow_of
from apps.production.enums import RequestedPriority
from apps.production.models import MAX_PRIORITY, MIN_PRIORITY, Request, Stage
from apps.production.permissions import visible_experiments
from apps.statusboard.models import Service


class StageReader(serializers.ModelSerializer[Stage]):
    services: Any = serializers.SlugRelatedField("slug", many=True, read_only=True)

    class Meta:
        model = Stage
        fields = ["kind", *STAGE_FIELDS, "services", "arguments"]
        read_only_fields = fields

    def to_representation(self, stage: Stage) -> dict[str, Any]:
        """Skip the fields' own conversion, which takes most of the time for a list with hundreds of stages."""
        shown = {name: getattr(stage, name) for name in self.Meta.fields}
        return {**shown, "services": [service.slug for service in stage.services.all()]}


class RequestRow(serializers.ModelSerializer[Request]):
    """A request as lists tell it; its own address has what it is for, its arguments and its stages too."""

    experiment = serializers.CharField(source="experiment.key", read_only=True)
    created_by = serializers.CharField(source="created_by.username", read_only=True)
    submitted_by = serializers.CharField(source="submitted_by.username", read_only=True, allow_null=True, default=None)
    approved_by = serializers.CharField(source="approved_by.username", read_only=True, allow_null=True, default=None)
    closed_by = serializers.CharField(source="closed_by.username", read_only=True, allow_null=True, default=None)
    workflow = serializers.CharField(source="workflow.type.key", read_only=True)
    superseded_by = serializers.CharField(source="superseded_by.key", read_only=True, allow_null=True, default=None)
    workflow_version = serializers.IntegerField(source="workflow.number", read_only=True)
    priority_class = serializers.ChoiceField(
        choices=RequestedPriority.choices, read_only=True, allow_blank=True, help_text="Empty until the OPG sets it."
    )
    rank = serializers.SerializerMethodField(help_text="Rank in the queue, 1 is next; null outside the queue.")

    class Meta:
        model = Request
        fields = [
            "key",
            "experiment",
            "workflow",
            "workflow_version",
            "title",
            "deadline",
            "requested_priority",
            "state",
            "held_from",
            "superseded_by",
            "priority_class",
            "priority",
            "rank",
            "version",
            "created_at",
            "created_by",
            "submitted_at",
            "submitted_by",
            "approved_at",
            "approved_by",
            "closed_at",
            "closed_by",
        ]
        read_only_fields = fields

    @extend_schema_field({"type": "integer", "nullable": True})
    def get_rank(self, request: Request) -> int | None:
        ranks: dict[int, int] = self.context.get("ranks", {})
        return ranks.get(request.pk)


class RequestReader(RequestRow):
    """A request; write it with the `version` you have read, so that nothing of others is overwritten."""

    stages = StageReader(many=True, read_only=True)

    class Meta(RequestRow.Meta):
        fields = [*RequestRow.Meta.fields, "purpose", "priority_reason", "arguments", "stages"]
        read_only_fields = fields


def _field(argument: Argument) -> serializers.Field[Any, Any, Any, Any]:
    """Return the serializer field of a common argument of requests or stages."""
    match argument.type:
        case "count" | "size" | "duration":
            return serializers.IntegerField(required=False, allow_null=True, min_value=1, max_value=argument.most)
        case "choice":
            return serializers.ChoiceField(required=False, choices=argument.choices)
        case "date":
            return serializers.DateField(required=False, allow_null=True)
        case "services":
            slug = serializers.CharField(max_length=64)
            return serializers.ListField(child=slug, required=False, max_length=100, help_text="Slugs of services.")
    return serializers.CharField(required=False, allow_blank=True, max_length=argument.most)


def _arguments() -> serializers.DictField:
    return serializers.DictField(
        child=serializers.JSONField(allow_null=True),
        required=False,
        help_text="Arguments of the workflow type; see `/api/v1/workflow-types/` for their schema.",
    )


class StageWriter(serializers.Serializer[Any]):
    """A stage; without `input_dataset` it reads the output of the previous stage."""

    kind = serializers.CharField(
        required=False,
        max_length=40,
        help_text="Key of a stage of the workflow type. Default: the first.",
    )
    arguments = _arguments()

    def get_fields(self) -> Any:
        return {**super().get_fields(), **{name: _field(argument) for name, argument in CORE.items()}}

    def validate_services(self, slugs: list[str]) -> list[str]:
        """Check services here, so that unknown ones are reported together with other problems."""
        root = cast(RequestWriter, self.root)
        if unknown := [slug for slug in slugs if slug not in root.known_services]:
            raise serializers.ValidationError([unknown_service(slug) for slug in unknown])
        return slugs


class RequestWriter(serializers.Serializer[Any]):
    """A draft, which may be incomplete until it is submitted. `stages` replaces all stages."""

    arguments = _arguments()
    stages = StageWriter(many=True, required=False, max_length=MAX_STAGES)  # type: ignore[call-arg]

    def get_fields(self) -> Any:
        return {**super().get_fields(), **{name: _field(argument) for name, argument in REQUEST.items()}}

    @cached_property
    def known_services(self) -> frozenset[str]:
        return frozenset(Service.objects.values_list("slug", flat=True))

    def content(self, base: RequestContent | None = None) -> RequestContent:
        """Return the content sent, with the fields of `base` where nothing was sent."""
        kept = base or RequestContent()
        sent = {name: value for name, value in self.validated_data.items() if name not in {"experiment", "version"}}
        kind = sent.get("workflow", kept.workflow).stages[0].key
        if "arguments" in sent:
            sent["arguments"] = without_nulls(sent["arguments"])
        if "stages" in sent:
            sent["stages"] = tuple(_stage({"kind": kind, **stage}) for stage in sent["stages"])
        return replace(kept, **sent)


def _stage(values: dict[str, Any]) -> StageContent:
    services, arguments = tuple(values.get("services", ())), without_nulls(values.get("arguments", {}))
    return StageContent(**{**values, "services": services, "arguments": arguments})


class ExperimentField(serializers.SlugRelatedField[Experiment]):
    """Key of an experiment that the user can see; any other does not exist for them."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__("key", queryset=Experiment.objects.all(), **kwargs)

    def get_queryset(self) -> Any:
        request = self.context.get("request")
        return visible_experiments(request.user) if request else Experiment.objects.none()


class NewRequestWriter(RequestWriter):
    """A new draft of an experiment."""

    experiment = ExperimentField()
    workflow = serializers.CharField(
        required=False,
        max_length=40,
        help_text="Key of the workflow type, in its newest version. Default: general.",
    )

    def validate_workflow(self, key: str) -> Workflow:
        version = newest_versions(visible_types(self.context["request"].user).filter(key=key)).first()
        if version is None:
            raise serializers.ValidationError(f"Workflow type “{key}” does not exist.")
        return workflow_of(version)


class ChangedRequestWriter(RequestWriter):
    """A draft; `version` is the version you have read."""

    version = serializers.IntegerField(min_value=1)


class ChangeReader(serializers.Serializer[Any]):
    path = serializers.CharField(help_text="Such as `stages.0.memory_bytes`.")
    old = serializers.CharField(allow_blank=True)
    new = serializers.CharField(allow_blank=True)


class ReasonWriter(serializers.Serializer[Any]):
    """The reason. With `version`, refused if the request has changed since."""

    reason = serializers.CharField(required=False, allow_blank=True, default="", max_length=MAX_REASON)
    version = serializers.IntegerField(required=False, allow_null=True, default=None, min_value=1)


class SuccessorWriter(ReasonWriter):
    """With the key of the request that replaces this one."""

    successor = serializers.CharField(max_length=24)


class PriorityWriter(ReasonWriter):
    """A class, a number within it (higher runs sooner), or both. Fields not sent stay unchanged."""

    priority_class = serializers.ChoiceField(
        choices=RequestedPriority.choices, required=False, allow_null=True, default=None
    )
    priority = serializers.IntegerField(
        required=False, allow_null=True, default=None, min_value=MIN_PRIORITY, max_value=MAX_PRIORITY
    )
