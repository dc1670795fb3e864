"""An archived job as the API shows it."""

from rest_framework import serializers

from apps.archive.models import ArchivedJob


class ArchivedJobSerializer(serializers.ModelSerializer):
    cluster = serializers.CharField(source="cluster.name")
    experiment = serializers.CharField(source="experiment.key", allow_null=True, default=None)
    request = serializers.CharField(source="request_key")
    script_sha256 = serializers.CharField()
    environment_sha256 = serializers.CharField()

    class Meta:
        model = ArchivedJob
        fields = [
            "id",
            "cluster",
            "job_id",
            "submitted_at",
            "captured_at",
            "script_sha256",
            "script_bytes",
            "environment_sha256",
            "environment_bytes",
            "masked_names",
            "experiment",
            "request",
            "stage",
        ]
