"""Requests in the API: readers and writers. Writers only parse; domain functions save."""

from dataclasses import replace
from typing import Any

from django.utils import timezone
from drf_spectacular.drainage import set_override
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.accounts.domain.experiments import visible_experiments
from apps.accounts.models import Experiment
from apps.core.api.moments import DayField
from apps.core.errors import InvalidFields
from apps.production.domain.checks.facts import basic_facts
from apps.production.domain.checks.report import check_shape
from apps.production.domain.content.model import MAX_STAGES, STAGE_FIELDS, RequestContent, values_of
from apps.production.domain.content.scan import read_scan
from apps.production.domain.content.serialization import read_plain
from apps.production.domain.forecast import forecast_of
from apps.production.domain.reasons import MAX_REASON
from apps.production.domain.slack import slack_of
from apps.production.domain.types.arguments import Argument
from apps.production.domain.types.declaration import Workflow
from apps.production.domain.types.fields import CORE, REQUEST
from apps.production.domain.types.versions import newest_versions, visible_types, workflow_of
from apps.production.enums import CLOSED, RequestedPriority
from apps.production.models import MAX_PRIORITY, MIN_PRIORITY, Attention, Request, Stage


class StageReader(serializers.ModelSerializer[Stage]):
    services: Any = serializers.SlugRelatedField("slug", many=True, read_only=True)

    class Meta:
        model = Stage
        fields = ["kind", *STAGE_FIELDS, "services", "arguments"]
        read_only_fields = fields

    def to_representation(self, stage: Stage) -> dict[str, Any]:
        """Skip the fields' own conversion, which is slow for lists with hundreds of stages."""
        shown = values_of(stage, self.Meta.fields)
        return {**shown, "services": [service.slug for service in stage.services.all()]}


class AttentionReader(serializers.ModelSerializer[Attention]):
    """A reason why a request needs attention, and since when."""

    class Meta:
        model = Attention
        fields = ["kind", "since", "words"]
        read_only_fields = fields


class RequestRow(serializers.ModelSerializer[Request]):
    """A request in a list. Its own address also has purpose, arguments and stages."""

    experiment = serializers.CharField(source="experiment.key", read_only=True)
    created_by = serializers.CharField(source="created_by.username", read_only=True)
    submitted_by = serializers.CharField(
        source="submitted_by.username", read_only=True, allow_null=True, default=None
    )
    approved_by = serializers.CharField(
        source="approved_by.username", read_only=True, allow_null=True, default=None
    )
    closed_by = serializers.CharField(
        source="closed_by.username", read_only=True, allow_null=True, default=None
    )
    workflow = serializers.CharField(source="workflow.type.key", read_only=True)
    superseded_by = serializers.CharField(
        source="superseded_by.key", read_only=True, allow_null=True, default=None
    )
    workflow_version = serializers.IntegerField(source="workflow.number", read_only=True)
    priority_class = serializers.ChoiceField(
        choices=RequestedPriority.choices,
        read_only=True,
        allow_blank=True,
        help_text="Empty until the OPG sets it.",
    )
    attention = AttentionReader(many=True, read_only=True)
    rank = serializers.SerializerMethodField(
        help_text="Rank in the queue, 1 is next; null outside the queue."
    )
    expected_end_assumption = serializers.SerializerMethodField(
        help_text="What `expected_end` assumes, such as `if it started today`; empty if nothing."
    )
    slack_days = serializers.SerializerMethodField(
        help_text=(
            "Days from the expected end to the deadline, negative if it is late; null if unknown "
            "or closed."
        )
    )

    class Meta:
        model = Request
        fields = [
            "key",
            "experiment",
            "workflow",
            "workflow_version",
            "title",
            "campaign",
            "deadline",
            "requested_priority",
            "state",
            "held_from",
            "superseded_by",
            "priority_class",
            "priority",
            "rank",
            "attention",
            "expected_start",
            "expected_end",
            "expected_end_assumption",
            "slack_days",
            "forecast_basis",
            "forecast_at",
            "part_done",
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

    def get_expected_end_assumption(self, request: Request) -> str:
        forecast = forecast_of(request)
        return forecast.assumption if forecast else ""

    @extend_schema_field({"type": "integer", "nullable": True})
    def get_slack_days(self, request: Request) -> int | None:
        if request.state in CLOSED:
            return None
        slack = slack_of(request.deadline, forecast_of(request), today=timezone.localdate())
        return slack.days if slack else None


class RequestReader(RequestRow):
    """A request. To change it, send the `version` that you have read, so that no change is lost."""

    stages = StageReader(many=True, read_only=True)
    points = serializers.SerializerMethodField(
        help_text="Points of the parameter scan; 1 without one."
    )

    class Meta(RequestRow.Meta):
        fields = [
            *RequestRow.Meta.fields,
            "purpose",
            "priority_reason",
            "scan",
            "points",
            "arguments",
            "stages",
        ]
        read_only_fields = fields

    def get_points(self, request: Request) -> int:
        return read_scan(request.scan).count


def _field(argument: Argument) -> serializers.Field[Any, Any, Any, Any]:
    """Return the field of a common argument of requests or stages.

    `read_plain` parses and checks its values.
    """
    schema = argument.schema()
    if not argument.kind.is_text and "type" in schema and schema["type"] != "array":
        schema["oneOf"] = [{"type": schema.pop("type")}, {"type": "string"}]
    return _raw_field({**schema, "nullable": True})


class _RawField(serializers.JSONField):
    def to_internal_value(self, data: Any) -> Any:
        value: Any = super().to_internal_value(data)
        return value.strip() if isinstance(value, str) else value


def _raw_field(schema: dict[str, Any]) -> _RawField:
    field = _RawField(required=False, allow_null=True)
    set_override(field, "field", schema)
    return field


_ARGUMENTS = {
    "type": "object",
    "additionalProperties": {},
    "description": "Arguments of the workflow type; see `/api/v1/workflow-types/` for their "
    "schema.",
}


class StageWriter(serializers.Serializer[Any]):
    """A stage. Without `input_dataset`, it reads the output of the previous stage."""

    def get_fields(self) -> Any:
        kind = {
            "type": "string",
            "description": "Key of a stage of the workflow type. Default: the first.",
        }
        own = {"kind": _raw_field(kind), "arguments": _raw_field(_ARGUMENTS)}
        return {**own, **{name: _field(argument) for name, argument in CORE.items()}}


class RequestWriter(serializers.Serializer[Any]):
    """A draft, which may be incomplete until it is submitted. `stages` replaces all stages."""

    stages = StageWriter(many=True, required=False, max_length=MAX_STAGES)  # type: ignore[call-arg]

    def get_fields(self) -> Any:
        own = {**super().get_fields(), "arguments": _raw_field(_ARGUMENTS)}
        return {**own, **{name: _field(argument) for name, argument in REQUEST.items()}}

    def content(self, base: RequestContent | None = None) -> RequestContent:
        """Return the submitted content, with the fields of `base` where nothing was sent.

        Raises `InvalidFields`.
        """
        sent = {}
        for name, value in self.validated_data.items():
            if name not in {"experiment", "version"}:
                sent[name] = value
        workflow = sent.pop("workflow", None) or (base or RequestContent()).workflow
        read, problems = read_plain(sent, workflow)
        if problems:
            raise InvalidFields({**check_shape(read, basic_facts(timezone.now())), **problems})
        return replace(
            base or RequestContent(),
            workflow=workflow,
            **values_of(read, sent),
        )


class ExperimentField(serializers.SlugRelatedField[Experiment]):
    """Key of an experiment that the user can see. Other experiments are reported as missing."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__("key", queryset=Experiment.objects.all(), **kwargs)

    def get_queryset(self) -> Any:
        request = self.context.get("request")
        if request:
            return visible_experiments(request.user)
        return Experiment.objects.none()


_WORKFLOW = "Key of the workflow type, in its newest version."


class NewRequestWriter(RequestWriter):
    """A new draft of an experiment."""

    experiment = ExperimentField()
    workflow = serializers.CharField(
        required=False, max_length=40, help_text=f"{_WORKFLOW} Default: general."
    )

    def validate_workflow(self, key: str) -> Workflow:
        version = newest_versions(
            visible_types(self.context["request"].user).filter(key=key)
        ).first()
        if version is None:
            raise serializers.ValidationError(f"Workflow type “{key}” does not exist.")
        return workflow_of(version)


class ChangedRequestWriter(NewRequestWriter):
    """A draft. `version` is the version that you have read.

    Experiment and type are fixed once it is submitted.
    """

    experiment = ExperimentField(required=False)
    workflow = serializers.CharField(required=False, max_length=40, help_text=_WORKFLOW)
    version = serializers.IntegerField(min_value=1)


class ChangeReader(serializers.Serializer[Any]):
    path = serializers.CharField(help_text="Such as `stages.0.memory_bytes`.")
    old = serializers.CharField(allow_blank=True)
    new = serializers.CharField(allow_blank=True)


class ReasonWriter(serializers.Serializer[Any]):
    """The reason. With `version`, refused if the request has changed since."""

    reason = serializers.CharField(
        required=False, allow_blank=True, default="", max_length=MAX_REASON
    )
    version = serializers.IntegerField(required=False, allow_null=True, default=None, min_value=1)


class SuccessorWriter(ReasonWriter):
    """The reason, and the key of the request that replaces this one."""

    successor = serializers.CharField(max_length=24)


class RescheduleWriter(ReasonWriter):
    """A later deadline, a class to request from the approvers, or both, with the reason."""

    deadline = DayField(required=False, allow_null=True, default=None)
    requested_class = serializers.ChoiceField(
        choices=RequestedPriority.choices, required=False, allow_null=True, default=None
    )


class PriorityWriter(ReasonWriter):
    """A class, a number within it (higher runs sooner), or both. Fields not sent stay unchanged."""

    priority_class = serializers.ChoiceField(
        choices=RequestedPriority.choices, required=False, allow_null=True, default=None
    )
    priority = serializers.IntegerField(
        required=False,
        allow_null=True,
        default=None,
        min_value=MIN_PRIORITY,
        max_value=MAX_PRIORITY,
    )
