"""Data quality in the API. What is posted is read strictly: numbers are numbers, and unknown names are refused."""

from collections.abc import Mapping
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.production.domain.reasons import MAX_REASON
from apps.quality.domain.posts import FILES_A_POST, MAX_WHY, MOST_BINS
from apps.quality.domain.standing import Rated
from apps.quality.enums import External
from apps.quality.models import ExternalResult, HistogramPair, QualityResult, QualityRun, Waiver

_MOST = 10**15


@extend_schema_field(OpenApiTypes.DOUBLE)
class Figure(serializers.Field[Any, Any, Any, Any]):
    """A JSON number: no text, no true."""

    default_error_messages = {"invalid": "A number."}

    def to_internal_value(self, data: Any) -> int | float:
        if type(data) not in (int, float):
            self.fail("invalid")
        number: int | float = data
        return number

    def to_representation(self, value: Any) -> Any:
        return value


class Strict(serializers.Serializer[Any]):
    """A body in which a name that nobody knows is a fault, not silence."""

    def to_internal_value(self, data: Any) -> Any:
        unknown = set(data) - set(self.fields) if isinstance(data, Mapping) else set()
        if unknown:
            raise serializers.ValidationError({str(name)[:100]: ["There is no such field."] for name in unknown})
        return super().to_internal_value(data)


class _OfStage(Strict):
    stage = serializers.IntegerField(min_value=1, max_value=10_000, help_text="Its number: 1 is the first.")


class FileWriter(Strict):
    """One file."""

    name = serializers.CharField(max_length=200, trim_whitespace=False)
    size_bytes = serializers.IntegerField(min_value=0, max_value=_MOST)
    events = serializers.IntegerField(min_value=0, max_value=_MOST, required=False, allow_null=True, default=None)


class FilesWriter(_OfStage):
    """Files that one reporter has written; the same key again replaces all that it named before."""

    key = serializers.CharField(max_length=200, trim_whitespace=False, help_text="Such as the job's id.")
    files = serializers.ListField(child=FileWriter(), min_length=1, max_length=FILES_A_POST)


class HistogramWriter(_OfStage):
    """A histogram beside its reference, in the same bins."""

    name = serializers.CharField(max_length=200, trim_whitespace=False)
    edges = serializers.ListField(child=Figure(), min_length=2, max_length=MOST_BINS + 1, help_text="Of the bins.")
    reference = serializers.ListField(child=Figure(), min_length=1, max_length=MOST_BINS, help_text="Entries a bin.")
    observed = serializers.ListField(child=Figure(), min_length=1, max_length=MOST_BINS, help_text="Entries a bin.")
    link = serializers.CharField(required=False, allow_blank=True, default="", max_length=500)


class ResultWriter(Strict):
    """What a tool outside says; without `stage` of the request as a whole."""

    stage = serializers.IntegerField(min_value=1, max_value=10_000, required=False, allow_null=True, default=None)
    name = serializers.CharField(max_length=200, trim_whitespace=False, help_text="Tool and check: dqm/occupancy.")
    outcome = serializers.ChoiceField(choices=External.choices)
    why = serializers.CharField(max_length=MAX_WHY)
    value = Figure(required=False, allow_null=True, default=None)
    threshold = Figure(required=False, allow_null=True, default=None)
    link = serializers.CharField(required=False, allow_blank=True, default="", max_length=500)


class AgainWriter(Strict):
    """Why the checks run again, if there is something to say."""

    reason = serializers.CharField(required=False, allow_blank=True, default="", max_length=MAX_REASON)


class WaiveWriter(Strict):
    """Which result is waived, by its id, and why."""

    result = serializers.IntegerField(min_value=1, max_value=2**62)
    reason = serializers.CharField(max_length=MAX_REASON)
    in_part = serializers.BooleanField(required=False, default=False, help_text="The request is then partially done.")


class WithdrawWaiverWriter(Strict):
    """Which waiver is taken back, by its id, and why."""

    waiver = serializers.IntegerField(min_value=1, max_value=2**62)
    reason = serializers.CharField(max_length=MAX_REASON)


class WaiverReader(serializers.ModelSerializer[Waiver]):
    by = serializers.CharField(source="by.username")
    check = serializers.CharField(source="check_name")

    class Meta:
        model = Waiver
        fields = [
            *("id", "run_number", "position", "stage_name", "check", "subject", "why", "in_part", "reason", "at", "by"),
            *("withdrawn_at", "withdrawn_by", "withdrawn_reason"),
        ]


class NumberReader(serializers.Serializer[Any]):
    """A figure behind a result."""

    name = serializers.CharField()
    value = serializers.JSONField(allow_null=True)
    link = serializers.CharField(allow_blank=True)


class ResultReader(serializers.ModelSerializer[QualityResult]):
    """One result; `is_open` stands between the request and its end."""

    check = serializers.CharField(source="check_name")
    numbers = NumberReader(many=True)
    is_open = serializers.SerializerMethodField()
    waiver = serializers.SerializerMethodField()

    class Meta:
        model = QualityResult
        fields = [
            *("id", "position", "stage_name", "check", "title", "subject", "outcome", "blocks", "is_open", "value"),
            *("threshold", "unit", "why", "numbers", "waiver"),
        ]

    def _rated(self, result: QualityResult) -> Rated:
        rated: Rated = self.context["rated"][result.pk]
        return rated

    def get_is_open(self, result: QualityResult) -> bool:
        return self._rated(result).is_open

    def get_waiver(self, result: QualityResult) -> int | None:
        waiver = self._rated(result).waiver
        return waiver.pk if waiver else None


class RunReader(serializers.ModelSerializer[QualityRun]):
    """A run with the thresholds it was judged by."""

    class Meta:
        model = QualityRun
        fields = ["number", "state", "asked_at", "asked_by", "reason", "judged_at", "thresholds", "totals_at"]


class StandingReader(serializers.Serializer[Any]):
    """How a request stands: the newest run, the results of the newest that was judged, and all waivers."""

    request = serializers.CharField()
    state = serializers.CharField()
    passes = serializers.BooleanField(help_text="Nothing stands between the request and its end.")
    is_stale = serializers.BooleanField(
        help_text="Something new was reported, or thresholds were changed: the checks run again."
    )
    run = RunReader(allow_null=True)
    results = ResultReader(many=True)
    waivers = WaiverReader(many=True)


class PostedReader(serializers.Serializer[Any]):
    """What was noted."""

    noted = serializers.IntegerField()


class HistogramReader(serializers.ModelSerializer[HistogramPair]):
    class Meta:
        model = HistogramPair
        fields = ["name", "edges", "reference", "observed", "link", "at", "by"]


class ExternalReader(serializers.ModelSerializer[ExternalResult]):
    class Meta:
        model = ExternalResult
        fields = ["name", "outcome", "value", "threshold", "why", "link", "at", "by"]
