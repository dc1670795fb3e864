"""What the API tells of a job."""

from rest_framework import serializers

from apps.jobs.domain.records import RECORD_FIELDS
from apps.jobs.enums import LogPathSource
from apps.jobs.models import Job


class JobSerializer(serializers.ModelSerializer):
    """One attempt of one finished job."""

    cluster = serializers.CharField(source="cluster.name")
    experiment = serializers.CharField(source="experiment.key", allow_null=True, default=None)
    site = serializers.CharField(source="site.name", allow_null=True, default=None)
    log_path_source = serializers.ChoiceField(choices=LogPathSource.choices, read_only=True, allow_blank=True)
    request = serializers.CharField(source="request_key")

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
            "stage",
            "collected_at",
        ]
        read_only_fields = fields
