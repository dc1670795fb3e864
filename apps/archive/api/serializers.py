"""Archived jobs in the API: readers."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.archive.models import ArchivedJob, Pin

KINDS = ["equal", "changed", "removed", "added"]


class HitSerializer(serializers.Serializer[Any]):
    """A line of a script in which something was found."""

    line = serializers.IntegerField()
    text = serializers.CharField()


class UnstoredCaptureSerializer(serializers.Serializer[Any]):
    """A capture of the same submission whose contents are not stored."""

    sender = serializers.CharField(allow_null=True)
    script_sha256 = serializers.CharField()
    environment_sha256 = serializers.CharField()
    arguments_sha256 = serializers.CharField(help_text="Empty if the capture has no arguments.")
    received_at = serializers.DateTimeField()


class ArchivedJobSerializer(serializers.ModelSerializer):
    cluster = serializers.CharField(source="cluster.name")
    experiment = serializers.CharField(source="experiment.key", allow_null=True, default=None)
    request = serializers.CharField(source="request_key")
    script_sha256 = serializers.CharField()
    environment_sha256 = serializers.CharField()
    unstored_captures = UnstoredCaptureSerializer(many=True)
    chosen_at = serializers.DateTimeField(
        allow_null=True, help_text="When a user chose this one of the captures that differ."
    )
    hits = serializers.SerializerMethodField(
        help_text="Up to three script lines that match the search."
    )

    @extend_schema_field(HitSerializer(many=True))
    def get_hits(self, job: ArchivedJob) -> list[dict[str, Any]]:
        hits = self.context.get("hits", {}).get(job.script_id, [])
        return [{"line": hit.number, "text": hit.text} for hit in hits]

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
            "user",
            "account",
            "name",
            "arguments",
            "state",
            "caveat",
            "sender",
            "conflict",
            "conflict_version",
            "unstored_captures",
            "chosen_by",
            "chosen_at",
            "chosen_reason",
            "hits",
        ]


class RowSerializer(serializers.Serializer[Any]):
    """Two lines that face each other; numbers are null where a line was added or removed."""

    kind = serializers.ChoiceField(choices=KINDS)
    left = serializers.IntegerField(allow_null=True)
    right = serializers.IntegerField(allow_null=True)
    left_text = serializers.CharField()
    right_text = serializers.CharField()


class ChangeSerializer(serializers.Serializer[Any]):
    """A variable that differs."""

    name = serializers.CharField()
    kind = serializers.ChoiceField(choices=KINDS)
    left = serializers.CharField()
    right = serializers.CharField()


class DifferenceSerializer(serializers.Serializer[Any]):
    """Two jobs compared; `right` is the one that was asked about."""

    left = serializers.IntegerField(source="left.pk")
    right = serializers.IntegerField(source="right.pk")
    same_script = serializers.BooleanField(help_text="Identical byte for byte.")
    same_environment = serializers.BooleanField(help_text="Identical byte for byte.")
    whole = serializers.BooleanField(
        help_text="False if only the first part of the scripts was compared."
    )
    plain = serializers.BooleanField(
        help_text="True if the full comparison took too long: dates and IDs count as differences."
    )
    lines = RowSerializer(
        many=True,
        source="differing_rows",
        allow_null=True,
        help_text="Null if one script is damaged.",
    )
    variables = ChangeSerializer(
        many=True, source="changes", allow_null=True, help_text="Null if you do not have access."
    )
    noise = ChangeSerializer(many=True, help_text="Variables that differ in every run.")
    equal_variables = serializers.IntegerField()


class NewPinSerializer(serializers.Serializer[Pin]):
    reason = serializers.CharField(max_length=200)


class PinSerializer(serializers.ModelSerializer[Pin]):
    class Meta:
        model = Pin
        fields = ["by", "reason", "at"]


class CaptureChoiceSerializer(serializers.Serializer[ArchivedJob]):
    conflict_version = serializers.IntegerField(
        help_text="That of the job, when you compared its captures."
    )
    reason = serializers.CharField(max_length=200)
