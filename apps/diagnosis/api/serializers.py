"""Verdicts in the API."""

from typing import Any

from rest_framework import serializers

from apps.core.api.moments import MomentField
from apps.diagnosis.domain.groups.triage import has_line_of_first_job
from apps.diagnosis.domain.reading.log_windows import MOST_LINES
from apps.diagnosis.enums import GroupStatus, Stream, VerdictKind
from apps.diagnosis.models import Evidence, FailureGroup, Verdict
from apps.jobs.enums import STATE_CHOICES


class EvidenceSerializer(serializers.ModelSerializer):
    class Meta:
        model = Evidence
        fields = ["stream", "line", "offset", "pattern", "role", "category", "service", "text"]


class LogQuery(serializers.Serializer):
    """The part of a log to return."""

    stream = serializers.ChoiceField(
        choices=Stream.choices, required=False, help_text="Default: the stream of the cause."
    )
    lines = serializers.IntegerField(min_value=1, max_value=MOST_LINES, default=50)
    before = serializers.IntegerField(
        min_value=0, required=False, help_text="Lines before this byte: `earlier`."
    )


class LogLineSerializer(serializers.Serializer):
    number = serializers.IntegerField(
        source="line.number", allow_null=True, help_text="Null if unknown."
    )
    offset = serializers.IntegerField(
        source="line.offset", help_text="Offset of the first byte in the file."
    )
    text = serializers.CharField(source="line.text")
    known_error = serializers.CharField(
        source="pattern", help_text="ID of the known error that matched, or empty."
    )


class LogSerializer(serializers.Serializer):
    """Lines of a log; `problem` says why they are not from the current file."""

    stream = serializers.ChoiceField(choices=Stream.choices)
    streams = serializers.ListField(child=serializers.CharField(), help_text="Streams of the job.")
    size_bytes = serializers.IntegerField(allow_null=True)
    earlier = serializers.IntegerField(
        allow_null=True, help_text="Send this as `before` to get earlier lines."
    )
    problem = serializers.CharField()
    lines = LogLineSerializer(many=True)


class CorrectionSerializer(serializers.Serializer):
    """The user's verdict, and the reason for it."""

    verdict = serializers.ChoiceField(choices=VerdictKind.choices)
    reason = serializers.CharField(max_length=2000, help_text="Why the automatic verdict is wrong.")


class VerdictReasonSerializer(serializers.Serializer):
    kind = serializers.CharField()
    text = serializers.CharField()
    target = serializers.CharField(
        help_text="`stdout:OFFSET` or `stderr:OFFSET` in the logs, `service:SLUG`, or empty."
    )


class VerdictSerializer(serializers.ModelSerializer):
    cluster = serializers.CharField(source="job.cluster.name")
    job_id = serializers.CharField(source="job.job_id")
    attempt = serializers.IntegerField(source="job.attempt")
    experiment = serializers.CharField(source="experiment.key", allow_null=True, default=None)
    reasons = VerdictReasonSerializer(many=True)
    later_state = serializers.ChoiceField(choices=STATE_CHOICES, read_only=True, allow_blank=True)
    retried_on = serializers.CharField(
        source="retried_on.name",
        allow_null=True,
        default=None,
        help_text="The cluster of the retry, if it is another than that of the job.",
    )

    class Meta:
        model = Verdict
        fields = [
            "job",
            "cluster",
            "job_id",
            "attempt",
            "experiment",
            "ended_at",
            "verdict",
            "advice",
            "machine_verdict",
            "category",
            "confidence",
            "cause",
            "service",
            "summary",
            "reasons",
            "catalogue_version",
            "decided_at",
            "later_attempt",
            "later_state",
            "retried_as",
            "retried_on",
            "overridden_by",
            "overridden_at",
            "override_reason",
        ]


class VerdictDetailSerializer(VerdictSerializer):
    """A verdict with its evidence: the known errors found in the job's logs."""

    evidence = EvidenceSerializer(source="job.harvest.evidence", many=True)

    class Meta(VerdictSerializer.Meta):
        fields = [*VerdictSerializer.Meta.fields, "evidence"]


class GroupSerializer(serializers.ModelSerializer):
    """A failure group; counts are of the jobs that the caller may see."""

    jobs = serializers.IntegerField()
    succeeded = serializers.IntegerField(help_text="Jobs that completed at a later attempt.")
    core_seconds = serializers.IntegerField()

    class Meta:
        model = FailureGroup
        fields = [
            "id",
            "kind",
            "verdict",
            "cause",
            "service",
            "host",
            "release",
            "title",
            "line",
            "status",
            "status_at",
            "owner",
            "muted_until",
            "first_seen_at",
            "last_seen_at",
            "jobs",
            "succeeded",
            "core_seconds",
        ]

    def to_representation(self, group: FailureGroup) -> dict[str, Any]:
        fields: dict[str, Any] = super().to_representation(group)
        # The line may be of a job that the caller may not see.
        if getattr(group, "has_hidden_jobs", False) and has_line_of_first_job(group):
            fields["line"] = ""
        return fields


class AssignmentSerializer(serializers.Serializer):
    owner = serializers.CharField(max_length=150, help_text="Username.")
    reason = serializers.CharField(max_length=4000, required=False, default="")


class StatusSerializer(serializers.Serializer):
    status = serializers.ChoiceField(
        choices=[GroupStatus.KNOWN, GroupStatus.RETRIED, GroupStatus.RESOLVED, GroupStatus.MUTED]
    )
    reason = serializers.CharField(max_length=4000, required=False, default="")
    muted_until = MomentField(
        required=False,
        default=None,
        allow_null=True,
        help_text="When the mute ends; only `muted` needs it.",
    )


class NoteSerializer(serializers.Serializer):
    text = serializers.CharField(max_length=4000)
