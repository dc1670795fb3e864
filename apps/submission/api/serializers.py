"""Submissions in the API."""

from typing import Any

from rest_framework import serializers

from apps.clusters.models import Cluster
from apps.diagnosis.enums import VerdictKind
from apps.production.api.serializers import ReasonWriter
from apps.production.domain.reasons import MAX_REASON
from apps.submission.domain.arrays.ignored_advice import MOST_HOURS
from apps.submission.domain.arrays.limits import MAX_LIMIT
from apps.submission.models import StageScouts, Submission


class SubmissionReader(serializers.ModelSerializer[Submission]):
    """One array of jobs."""

    request = serializers.CharField(source="request.key")
    cluster = serializers.CharField(source="cluster.name")
    is_test = serializers.BooleanField()
    retry_of = serializers.IntegerField(source="retry_of.number", allow_null=True, default=None)
    excluded_hosts = serializers.ListField(
        child=serializers.CharField(),
        read_only=True,
        help_text="Excluded hosts that its jobs avoid, as of its submission.",
    )
    exclusions_dropped = serializers.BooleanField(
        read_only=True,
        help_text="Hosts were excluded, but its jobs may use them: no other host was left.",
    )

    class Meta:
        model = Submission
        fields = [
            "request",
            "number",
            "position",
            "stage_name",
            "purpose",
            "is_test",
            "cluster",
            "retry_of",
            "first",
            "tasks",
            "indices",
            "changes",
            "held_at",
            "cancel_requested_at",
            "cancelled_at",
            "state",
            "attempts",
            "spool_id",
            "sent_at",
            "ended",
            "completed",
            "failed_indices",
            "settled_at",
            "last_error",
            "script_sha256",
            "created_at",
            "created_by",
            "excluded_hosts",
            "exclusions_dropped",
        ]


class ScoutsReader(serializers.ModelSerializer[StageScouts]):
    """The first jobs of a stage."""

    request = serializers.CharField(source="request.key")
    group = serializers.IntegerField(source="group_id", allow_null=True)
    hold = serializers.IntegerField(source="hold_id", allow_null=True)
    hold_lifted_at = serializers.DateTimeField(
        source="hold.lifted_at",
        allow_null=True,
        default=None,
        help_text="Once the hold is lifted, the stage goes on and is not stopped again.",
    )

    class Meta:
        model = StageScouts
        fields = [
            "request",
            "position",
            "state",
            "allowed",
            "usual_rate",
            "ended",
            "completed",
            "failed",
            "group",
            "hold",
            "hold_lifted_at",
            "started_at",
            "judged_at",
            "measured_jobs",
            "measured_at",
            "asked_memory_bytes",
            "measured_memory_bytes",
            "memory_bytes",
            "asked_wall_seconds",
            "measured_wall_seconds",
            "wall_seconds",
        ]


class AssignWriter(ReasonWriter):
    """The cluster, and how to start: `test`, `start`, or null to keep the state."""

    cluster = serializers.SlugRelatedField(
        slug_field="name", queryset=Cluster.objects.filter(submits=True)
    )
    begin = serializers.ChoiceField(
        choices=["test", "start"], required=False, allow_null=True, default=None
    )
    most_in_flight = serializers.IntegerField(
        required=False, allow_null=True, min_value=1, max_value=MAX_LIMIT, default=None
    )


class RetryWriter(serializers.Serializer[Any]):
    """The failed jobs to retry."""

    position = serializers.IntegerField(
        min_value=0, max_value=1000, help_text="Of the stage, from 0."
    )
    verdict = serializers.ChoiceField(
        choices=VerdictKind.choices, required=False, allow_blank=True, default=""
    )
    with_planned = serializers.BooleanField(
        default=False, help_text="Also the jobs that recovery rules will retry."
    )
    reason = serializers.CharField(
        required=False, allow_blank=True, max_length=MAX_REASON, default=""
    )


class CancelWriter(serializers.Serializer[Any]):
    """The reason."""

    reason = serializers.CharField(max_length=MAX_REASON)


class ReleaseWriter(serializers.Serializer[Any]):
    """The array whose held jobs are released."""

    number = serializers.IntegerField(min_value=1, max_value=1_000_000)
    reason = serializers.CharField(max_length=MAX_REASON, required=False, allow_blank=True)


class AcceptWriter(CancelWriter):
    """The stage that is accepted as is, or waits for its missing jobs again."""

    position = serializers.IntegerField(
        min_value=0, max_value=1000, help_text="Of the stage, from 0."
    )


class LimitWriter(CancelWriter):
    """The maximum number of concurrent jobs, null for no limit; `was` is the limit it replaces (0:
    none).
    """

    most_in_flight = serializers.IntegerField(allow_null=True, min_value=1, max_value=MAX_LIMIT)
    was = serializers.IntegerField(
        required=False, allow_null=True, min_value=0, max_value=MAX_LIMIT, default=None
    )


class IgnoreAdviceWriter(CancelWriter):
    """For how many hours jobs are submitted although the advice is not to."""

    hours = serializers.IntegerField(min_value=1, max_value=MOST_HOURS, default=24)


class FollowAdviceWriter(serializers.Serializer[Any]):
    """An optional reason."""

    reason = serializers.CharField(
        max_length=MAX_REASON, required=False, allow_blank=True, default=""
    )


class SendAgainWriter(serializers.Serializer[Any]):
    """The number of the array."""

    number = serializers.IntegerField(min_value=1, max_value=2**31 - 1)
