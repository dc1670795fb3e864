"""Jobs and claims of jobs in the API."""

from typing import Any

from rest_framework import serializers

from apps.clusters.models import Cluster
from apps.jobs.domain.records import RECORD_FIELDS
from apps.jobs.enums import ClaimScope, LogPathSource, Proof
from apps.jobs.models import ClaimAcceptance, Job
from apps.production.domain.reasons import MAX_REASON


class JobSerializer(serializers.ModelSerializer):
    """One attempt of one finished job."""

    cluster = serializers.CharField(source="cluster.name")
    experiment = serializers.CharField(source="experiment.key", allow_null=True, default=None)
    site = serializers.CharField(source="site.name", allow_null=True, default=None)
    log_path_source = serializers.ChoiceField(choices=LogPathSource.choices, read_only=True, allow_blank=True)
    request = serializers.CharField(source="request_key", help_text="Empty unless the claim is proven.")
    claimed_request = serializers.CharField(source="claimed_key", help_text="OPSPORTAL_REQUEST in its environment.")
    proof = serializers.ChoiceField(choices=Proof.choices, read_only=True, allow_blank=True)

    class Meta:
        model = Job
        fields = [
            "id",
            "cluster",
            "site",
            *RECORD_FIELDS,
            "log_path",
            "error_log_path",
            "log_path_source",
            "experiment",
            "request",
            "claimed_request",
            "proof",
            "stage",
            "collected_at",
        ]
        read_only_fields = fields


class ClaimReader(serializers.Serializer[Any]):
    """An array whose jobs claim to belong to a request, with numbers of attempts."""

    cluster = serializers.CharField(source="cluster__name")
    user = serializers.CharField()
    account = serializers.CharField()
    array = serializers.CharField(source="spool_id")
    submitted_at = serializers.DateTimeField()
    jobs = serializers.IntegerField()
    completed = serializers.IntegerField()
    failed = serializers.IntegerField()
    last_ended_at = serializers.DateTimeField()


class ClaimAcceptanceReader(serializers.ModelSerializer[ClaimAcceptance]):
    cluster = serializers.CharField(source="cluster.name")

    class Meta:
        model = ClaimAcceptance
        fields = [
            *("id", "cluster", "scope", "name", "submitted_at", "reason", "at", "by"),
            *("withdrawn_at", "withdrawn_by", "withdrawn_reason"),
        ]


class ClaimsReader(serializers.Serializer[Any]):
    """Unproven claims of jobs, newest first, at most 100 arrays; and the accepted claims."""

    request = serializers.CharField()
    claims = ClaimReader(many=True)
    accepted = ClaimAcceptanceReader(many=True)


class AcceptClaimsWriter(serializers.Serializer[Any]):
    """The claims to accept: one job, an array, or all jobs of a user, by `name`."""

    cluster = serializers.SlugRelatedField(slug_field="name", queryset=Cluster.objects.all())
    scope = serializers.ChoiceField(choices=ClaimScope.choices)
    name = serializers.CharField(max_length=255, trim_whitespace=False, help_text="Job ID, ID of the array, or user.")
    reason = serializers.CharField(max_length=MAX_REASON)


class WithdrawClaimsWriter(serializers.Serializer[Any]):
    """The acceptance to withdraw, by its ID."""

    acceptance = serializers.IntegerField(min_value=1, max_value=2**62)
    reason = serializers.CharField(max_length=MAX_REASON)
