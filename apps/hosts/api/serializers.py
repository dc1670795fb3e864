"""Exclusions of hosts as JSON."""

from typing import Any, ClassVar

from rest_framework import serializers

from apps.clusters.models import Cluster
from apps.core.api.moments import MomentField
from apps.diagnosis.enums import GroupKind
from apps.diagnosis.models import FailureGroup
from apps.hosts.enums import EndKind
from apps.hosts.models import HostExclusion
from apps.production.domain.reasons import MAX_REASON


class HostExclusionReader(serializers.ModelSerializer[HostExclusion]):
    """A host that new jobs of the portal do not run on, from `started_at` to its end.

    It ends at `ended_at`, or without effect from `expires_at` on. `failed_jobs` of `ended_jobs` is
    the evidence of the portal, null for a person's decision.
    """

    cluster = serializers.CharField(source="cluster.name")
    ended_as = serializers.ChoiceField(EndKind.choices, allow_blank=True)
    group = serializers.IntegerField(
        source="group_id", allow_null=True, help_text="The failure group of the host."
    )

    class Meta:
        model = HostExclusion
        fields: ClassVar[list[str]] = [
            "id",
            "cluster",
            "host",
            "reason",
            "automatic",
            "by",
            "failed_jobs",
            "ended_jobs",
            "evidence_from",
            "evidence_until",
            "group",
            "started_at",
            "expires_at",
            "ended_at",
            "ended_as",
            "ended_by",
            "end_reason",
        ]
        read_only_fields = fields


class HostExclusionWriter(serializers.Serializer[Any]):
    """A host to exclude. Without `expires_at`, it is excluded for HOST_EXCLUSION_HOURS."""

    cluster = serializers.SlugRelatedField(slug_field="name", queryset=Cluster.objects.all())
    host = serializers.CharField(max_length=255, help_text="Name of one host.")
    reason = serializers.CharField(max_length=MAX_REASON)
    expires_at = MomentField(required=False, allow_null=True, default=None)
    group = serializers.PrimaryKeyRelatedField(
        queryset=FailureGroup.objects.filter(kind=GroupKind.HOST),
        required=False,
        allow_null=True,
        default=None,
        help_text="The failure group of the host.",
    )


class HostExtensionWriter(serializers.Serializer[Any]):
    """Another end of an exclusion, later or earlier."""

    expires_at = MomentField()
    reason = serializers.CharField(
        max_length=MAX_REASON, required=False, allow_blank=True, default=""
    )


class HostReturnWriter(serializers.Serializer[Any]):
    """Why the host may get new jobs again."""

    reason = serializers.CharField(max_length=MAX_REASON)
