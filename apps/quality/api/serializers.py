"""Data quality in the API. Posts are parsed strictly: numbers must not be texts."""

from typing import Any

from rest_framework import serializers

from apps.datasets.domain.output_files import FILES_A_REPORT
from apps.production.domain.reasons import MAX_REASON
from apps.quality.domain.posts import MAX_WHY, MOST_BINS
from apps.quality.enums import External
from apps.quality.models import ExternalResult, HistogramPair, QualityResult, QualityRun, Waiver
from apps.submission.api.output_files import FileWriter


class Figure(serializers.FloatField):
    """A JSON number, not a text or a boolean."""

    default_error_messages = {"invalid": "Enter a number."}

    def to_internal_value(self, data: Any) -> Any:
        return data if type(data) in (int, float) else self.fail("invalid")


class _OfStage(serializers.Serializer[Any]):
    stage = serializers.IntegerField(
        min_value=1, max_value=10_000, help_text="Number of the stage, from 1."
    )


class FilesWriter(_OfStage):
    """Files of one reporter. Posting the same key again replaces them."""

    key = serializers.CharField(
        max_length=200,
        trim_whitespace=False,
        help_text="Identifies the reporter, such as a job ID.",
    )
    files = serializers.ListField(child=FileWriter(), min_length=1, max_length=FILES_A_REPORT)


class HistogramWriter(_OfStage):
    """A histogram and its reference, in the same bins."""

    name = serializers.CharField(max_length=200, trim_whitespace=False)
    edges = serializers.ListField(
        child=Figure(), min_length=2, max_length=MOST_BINS + 1, help_text="Bin edges, increasing."
    )
    reference = serializers.ListField(
        child=Figure(), min_length=1, max_length=MOST_BINS, help_text="Entries per bin."
    )
    observed = serializers.ListField(
        child=Figure(), min_length=1, max_length=MOST_BINS, help_text="Entries per bin."
    )
    link = serializers.CharField(required=False, allow_blank=True, default="", max_length=500)


class ResultWriter(serializers.Serializer[Any]):
    """A result of an external tool. Without `stage`, it applies to the whole request."""

    stage = serializers.IntegerField(
        min_value=1, max_value=10_000, required=False, allow_null=True, default=None
    )
    name = serializers.CharField(
        max_length=200, trim_whitespace=False, help_text="Tool and check: dqm/occupancy."
    )
    outcome = serializers.ChoiceField(choices=External.choices)
    why = serializers.CharField(max_length=MAX_WHY)
    value = Figure(required=False, allow_null=True, default=None)
    threshold = Figure(required=False, allow_null=True, default=None)
    link = serializers.CharField(required=False, allow_blank=True, default="", max_length=500)


class AgainWriter(serializers.Serializer[Any]):
    """The request for a new run of the checks."""

    reason = serializers.CharField(
        required=False, allow_blank=True, default="", max_length=MAX_REASON
    )


class WaiveWriter(serializers.Serializer[Any]):
    """The waiver of a result, by its ID."""

    result = serializers.IntegerField(min_value=1, max_value=2**62)
    reason = serializers.CharField(max_length=MAX_REASON)
    in_part = serializers.BooleanField(
        required=False, default=False, help_text="Close the request as partially done."
    )


class WithdrawWaiverWriter(serializers.Serializer[Any]):
    """The withdrawal of a waiver, by its ID."""

    waiver = serializers.IntegerField(min_value=1, max_value=2**62)
    reason = serializers.CharField(max_length=MAX_REASON)


class WaiverReader(serializers.ModelSerializer[Waiver]):
    by = serializers.CharField(source="by.username")
    check = serializers.CharField(source="check_name")

    class Meta:
        model = Waiver
        fields = [
            "id",
            "run_number",
            "position",
            "stage_name",
            "check",
            "subject",
            "why",
            "in_part",
            "reason",
            "at",
            "by",
            "withdrawn_at",
            "withdrawn_by",
            "withdrawn_reason",
        ]


class NumberReader(serializers.Serializer[Any]):
    """A figure that a result is based on."""

    name = serializers.CharField()
    value = serializers.JSONField(allow_null=True)
    link = serializers.CharField(allow_blank=True)


class ResultReader(serializers.ModelSerializer[QualityResult]):
    """A result. The request cannot be closed while it `is_open`."""

    check = serializers.CharField(source="check_name")
    numbers = NumberReader(many=True)
    waiver = serializers.IntegerField(
        source="waiver.pk", read_only=True, allow_null=True, default=None
    )

    class Meta:
        model = QualityResult
        fields = [
            "id",
            "position",
            "stage_name",
            "check",
            "title",
            "subject",
            "outcome",
            "blocks",
            "is_open",
            "value",
            "threshold",
            "unit",
            "why",
            "numbers",
            "waiver",
        ]


class RunReader(serializers.ModelSerializer[QualityRun]):
    """A run with its thresholds."""

    class Meta:
        model = QualityRun
        fields = [
            "number",
            "state",
            "requested_at",
            "requested_by",
            "reason",
            "evaluated_at",
            "thresholds",
            "totals_at",
        ]


class DataQualityReader(serializers.Serializer[Any]):
    """Data quality of a request: the newest run, results of the newest evaluated run, waivers."""

    request = serializers.CharField(source="request.key")
    state = serializers.CharField(source="request.state")
    passes = serializers.BooleanField(help_text="The request can be closed.")
    is_stale = serializers.BooleanField(
        help_text="Reports or thresholds have changed: the checks will run again."
    )
    run = RunReader(allow_null=True)
    results = ResultReader(many=True)
    waivers = WaiverReader(many=True)


class PostedReader(serializers.Serializer[Any]):
    """The number of stored items."""

    noted = serializers.IntegerField()


class HistogramReader(serializers.ModelSerializer[HistogramPair]):
    class Meta:
        model = HistogramPair
        fields = ["name", "edges", "reference", "observed", "link", "at", "by"]


class ExternalReader(serializers.ModelSerializer[ExternalResult]):
    class Meta:
        model = ExternalResult
        fields = ["name", "outcome", "value", "threshold", "why", "link", "at", "by"]
