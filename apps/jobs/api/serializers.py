"""Jobs and claims of jobs in the API."""

from typing import Any

from drf_spectacular.utils import extend_schema_field, extend_schema_serializer
from rest_framework import serializers

from apps.clusters.models import Cluster
from apps.jobs.domain.collection.origin import log_location
from apps.jobs.domain.collection.record_import import ImportedRecords
from apps.jobs.domain.records.conversion import RECORD_FIELDS
from apps.jobs.domain.records.energy import energy_of
from apps.jobs.domain.statistics.questions import AnswerRow
from apps.jobs.enums import ClaimScope, LogPathSource, Proof
from apps.jobs.models import ClaimAcceptance, Job
from apps.production.domain.reasons import MAX_REASON


class JobEnergyReader(serializers.Serializer[Any]):
    """Energy of a job's host; with cooling of the site, and the CO2 equivalent of that."""

    joules = serializers.FloatField()
    is_modelled = serializers.BooleanField(help_text="False: measured by the scheduler.")
    pue = serializers.FloatField(allow_null=True)
    site_joules = serializers.FloatField(allow_null=True)
    carbon_grams = serializers.FloatField(allow_null=True)


class JobSerializer(serializers.ModelSerializer):
    """One attempt of one finished job."""

    cluster = serializers.CharField(source="cluster.name")
    experiment = serializers.CharField(source="experiment.key", allow_null=True, default=None)
    site = serializers.CharField(source="site.name", allow_null=True, default=None)
    log_path_source = serializers.ChoiceField(
        choices=LogPathSource.choices, read_only=True, allow_blank=True
    )
    request = serializers.CharField(
        source="request_key", help_text="Empty unless the claim is proven."
    )
    claimed_request = serializers.CharField(
        source="claimed_key", help_text="OPSPORTAL_REQUEST in its environment."
    )
    proof = serializers.ChoiceField(choices=Proof.choices, read_only=True, allow_blank=True)

    energy = serializers.SerializerMethodField(
        help_text="Null if it is neither measured nor modelled."
    )

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
            "energy",
            "collected_at",
        ]
        read_only_fields = fields

    @extend_schema_field(JobEnergyReader(allow_null=True))
    def get_energy(self, job: Job) -> dict[str, Any] | None:
        energy = energy_of(job)
        return None if energy is None else JobEnergyReader(energy).data

    def to_representation(self, instance: Job) -> dict[str, Any]:
        shown: dict[str, Any] = super().to_representation(instance)
        location = log_location(instance)
        return shown | {
            "log_path": location.path,
            "error_log_path": location.error_path,
            "log_path_source": location.source,
        }


class ClaimReader(serializers.Serializer[Any]):
    """An array of jobs that claim to belong to a request, with numbers of attempts."""

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
            "id",
            "cluster",
            "scope",
            "name",
            "submitted_at",
            "reason",
            "at",
            "by",
            "withdrawn_at",
            "withdrawn_by",
            "withdrawn_reason",
        ]


class ClaimsReader(serializers.Serializer[Any]):
    """Unproven claims of jobs, newest first, at most 100 arrays, and the accepted claims."""

    request = serializers.CharField()
    claims = ClaimReader(many=True)
    accepted = ClaimAcceptanceReader(many=True)


class AcceptClaimsWriter(serializers.Serializer[Any]):
    """The claims to accept: one job, an array, or all jobs of a user, by `name`."""

    cluster = serializers.SlugRelatedField(slug_field="name", queryset=Cluster.objects.all())
    scope = serializers.ChoiceField(choices=ClaimScope.choices)
    name = serializers.CharField(
        max_length=255, trim_whitespace=False, help_text="Job ID, ID of the array, or user."
    )
    reason = serializers.CharField(max_length=MAX_REASON)


class WithdrawClaimsWriter(serializers.Serializer[Any]):
    """The acceptance to withdraw, by its ID."""

    acceptance = serializers.IntegerField(min_value=1, max_value=2**62)
    reason = serializers.CharField(max_length=MAX_REASON)


class StatisticsRowReader(serializers.Serializer[Any]):
    """Figures of one group of jobs. `key` has the group's values as the filters accept them."""

    key = serializers.DictField(child=serializers.CharField())
    jobs = serializers.IntegerField()
    failed = serializers.IntegerField()
    rate = serializers.FloatField(help_text="Failed of all, 0 to 1.")
    rate_low = serializers.FloatField(help_text="95 % Wilson interval.")
    rate_high = serializers.FloatField()
    rate_expected = serializers.FloatField(
        source="expected",
        allow_null=True,
        help_text="Rate of the same experiment, stage and release.",
    )
    core_seconds = serializers.IntegerField()
    wasted_core_seconds = serializers.IntegerField()
    value = serializers.SerializerMethodField(
        method_name="value_of",
        help_text="The measure: hours, seconds, a share of 1, or a number; null if unknown.",
    )

    def value_of(self, row: AnswerRow) -> float | None:
        return row.value(self.context["measure"])


class PopulationReader(serializers.Serializer[Any]):
    """The jobs counted: attempts that finished in [since, until), in whole hours."""

    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    filters = serializers.DictField(child=serializers.ListField(child=serializers.CharField()))
    measure = serializers.CharField()
    by = serializers.ListField(child=serializers.CharField())


@extend_schema_serializer(many=False)
class StatisticsReader(serializers.Serializer[Any]):
    """The largest rows of a query, at most 1,000, and the total of all rows."""

    population = PopulationReader()
    as_of = serializers.DateTimeField(allow_null=True, help_text="Null until jobs are counted.")
    rows = StatisticsRowReader(many=True)
    left_out = serializers.IntegerField(help_text="Rows beyond the limit.")
    total = StatisticsRowReader()


class JobRecordsWriter(serializers.Serializer[Any]):
    """Records of finished jobs of one cluster, at most 10,000."""

    cluster = serializers.SlugRelatedField(slug_field="name", queryset=Cluster.objects.all())
    records = serializers.ListField(
        child=serializers.JSONField(),
        max_length=10_000,
        help_text="Objects with the fields of a job.",
    )


class RecordProblemReader(serializers.Serializer[Any]):
    record = serializers.IntegerField(help_text="Its number in the batch, from 1.")
    reason = serializers.CharField()


class ImportedReader(serializers.Serializer[Any]):
    """How many records were stored, and the first 100 problems.

    Rejected records are kept unchanged.
    """

    new = serializers.IntegerField()
    changed = serializers.IntegerField()
    unchanged = serializers.IntegerField()
    rejected = serializers.IntegerField()
    problems = serializers.SerializerMethodField()

    @extend_schema_field(RecordProblemReader(many=True))
    def get_problems(self, done: ImportedRecords) -> list[dict[str, Any]]:
        return [{"record": number, "reason": reason} for number, reason in done.problems]
