"""Recovery rules, their versions and decisions as JSON."""

from typing import Any, ClassVar

from rest_framework import serializers

from apps.clusters.schedulers.base import JobState
from apps.diagnosis.enums import Category, VerdictKind
from apps.production.domain.reasons import MAX_REASON
from apps.recovery.domain.rules.definition import (
    MOST_ALIKE_JOBS,
    MOST_ATTEMPTS,
    MOST_FACTOR,
    MOST_HOLD_REASON,
)
from apps.recovery.enums import ActionKind, Mode
from apps.recovery.models import Decision, RecoveryRule

_MOST_VALUES = 100


class RecoveryScopeSerializer(serializers.Serializer[Any]):
    """Which jobs a rule is for; empty texts stand for all."""

    workflow_type = serializers.CharField(max_length=64, required=False, allow_blank=True)
    stage = serializers.CharField(max_length=64, required=False, allow_blank=True)
    cluster = serializers.CharField(max_length=64, required=False, allow_blank=True)
    site = serializers.CharField(max_length=64, required=False, allow_blank=True)


class RecoveryConditionSerializer(serializers.Serializer[Any]):
    """What the failure must be; an empty list matches anything."""

    verdicts = serializers.ListField(
        child=serializers.ChoiceField(VerdictKind.choices), required=False, max_length=_MOST_VALUES
    )
    categories = serializers.ListField(
        child=serializers.ChoiceField(Category.choices), required=False, max_length=_MOST_VALUES
    )
    known_errors = serializers.ListField(
        child=serializers.CharField(max_length=64), required=False, max_length=_MOST_VALUES
    )
    services = serializers.ListField(
        child=serializers.CharField(max_length=64), required=False, max_length=_MOST_VALUES
    )
    exit_codes = serializers.ListField(
        child=serializers.IntegerField(min_value=-(2**31), max_value=2**31 - 1),
        required=False,
        max_length=_MOST_VALUES,
    )
    signals = serializers.ListField(
        child=serializers.IntegerField(min_value=0, max_value=255),
        required=False,
        max_length=_MOST_VALUES,
    )
    end_states = serializers.ListField(
        child=serializers.ChoiceField([state.value for state in JobState]),
        required=False,
        max_length=_MOST_VALUES,
    )
    hold_reasons = serializers.ListField(
        child=serializers.CharField(max_length=MOST_HOLD_REASON),
        required=False,
        max_length=_MOST_VALUES,
        help_text="Parts of the reason for which a job was on hold when it ended.",
    )
    alike_jobs = serializers.IntegerField(
        min_value=0,
        max_value=MOST_ALIKE_JOBS,
        required=False,
        help_text="Minimum number of jobs, including this one, that fail by the same known error "
        "and service within about an hour.",
    )


class RecoveryActionSerializer(serializers.Serializer[Any]):
    """What the next attempt gets."""

    kind = serializers.ChoiceField(
        ActionKind.choices,
        help_text="`other-cluster`: one that starts requests of the experiment automatically; "
        "`avoid-site`: one of these at another site.",
    )
    factor = serializers.FloatField(
        min_value=1, max_value=MOST_FACTOR, required=False, help_text="Of memory or wall time."
    )
    most_factor = serializers.FloatField(
        min_value=1,
        max_value=MOST_FACTOR,
        required=False,
        help_text="Bound, as a multiple of what the stage requests.",
    )
    wait_minutes = serializers.IntegerField(min_value=0, max_value=10_080, required=False)


class RecoveryLimitsSerializer(serializers.Serializer[Any]):
    """How far a rule goes."""

    attempts = serializers.IntegerField(
        min_value=2, max_value=MOST_ATTEMPTS, required=False, help_text="With the first one."
    )
    core_hours_a_day = serializers.FloatField(min_value=0.1, max_value=10_000_000, required=False)
    request_percent = serializers.FloatField(
        min_value=0.1,
        max_value=100,
        required=False,
        help_text="Retries of jobs of a request, in percent of its jobs; then a person is asked.",
    )
    control_percent = serializers.FloatField(min_value=0, max_value=50, required=False)
    least_success_percent = serializers.FloatField(min_value=0, max_value=99, required=False)


class RecoveryDefinitionSerializer(serializers.Serializer[Any]):
    """A rule without its name and experiment."""

    scope = RecoveryScopeSerializer(required=False)
    condition = RecoveryConditionSerializer()
    action = RecoveryActionSerializer()
    limits = RecoveryLimitsSerializer(required=False)


class RecoveryRuleReader(serializers.ModelSerializer[RecoveryRule]):
    """A recovery rule with its current version."""

    experiment = serializers.CharField(source="experiment.key", default="")
    definition = RecoveryDefinitionSerializer()

    class Meta:
        model = RecoveryRule
        fields: ClassVar[list[str]] = [
            "id",
            "name",
            "position",
            "experiment",
            "version",
            "definition",
            "mode",
            "mode_at",
            "mode_by",
            "mode_reason",
            "stopped_itself",
            "owner",
            "shipped",
        ]
        read_only_fields = fields


class RecoveryRuleVersionWriter(serializers.Serializer[Any]):
    """The next version of a rule. `base` is the version that you have seen."""

    definition = RecoveryDefinitionSerializer()
    reason = serializers.CharField(max_length=MAX_REASON)
    base = serializers.IntegerField(min_value=1, max_value=2**31 - 1)


class RecoveryRuleWriter(serializers.Serializer[Any]):
    """A new rule."""

    name = serializers.CharField(max_length=64)
    experiment = serializers.CharField(
        max_length=32,
        required=False,
        default="",
        allow_blank=True,
        help_text="Key of the experiment; empty for all.",
    )
    definition = RecoveryDefinitionSerializer()
    reason = serializers.CharField(max_length=MAX_REASON)


class RecoveryModeWriter(serializers.Serializer[Any]):
    """The mode to switch to, and why."""

    mode = serializers.ChoiceField(Mode.choices)
    reason = serializers.CharField(
        max_length=MAX_REASON, required=False, default="", allow_blank=True
    )


class RecoveryDecisionReader(serializers.ModelSerializer[Decision]):
    """What was decided about a failed job, and how it ended."""

    job = serializers.IntegerField(source="job_id")
    job_id = serializers.CharField(source="job.job_id")
    rule = serializers.IntegerField(source="rule_id", allow_null=True)
    retry_batch = serializers.IntegerField(source="batch_id", allow_null=True)

    class Meta:
        model = Decision
        fields: ClassVar[list[str]] = [
            "id",
            "job",
            "job_id",
            "rule",
            "version",
            "arm",
            "outcome",
            "why",
            "changes",
            "attempt",
            "decided_at",
            "act_at",
            "retry_batch",
            "outcome_at",
            "failed_core_seconds",
            "retry_core_seconds",
        ]
        read_only_fields = fields
