"""Datasets and their provenance as the API returns them."""

from typing import Any

from rest_framework import serializers

from apps.datasets.domain.listing import DatasetRow
from apps.datasets.models import KnownDataset


class AnswerReader(serializers.ModelSerializer[KnownDataset]):
    """What a catalogue answered. `exists` is null before its first answer."""

    catalogue = serializers.CharField(source="catalogue.name")
    catalogue_error = serializers.CharField(
        source="catalogue.error", help_text="Why the catalogue does not answer; empty if it does."
    )

    class Meta:
        model = KnownDataset
        fields = (
            *("catalogue", "exists", "files", "events", "size_bytes", "answered_at"),
            "catalogue_error",
        )
        read_only_fields = fields


class DatasetReader(serializers.Serializer[Any]):
    """A dataset that a stage writes. `answer` is the newest of a catalogue that has it."""

    name = serializers.CharField()
    request = serializers.CharField(source="stage.request.key")
    experiment = serializers.CharField(source="stage.request.experiment.key")
    state = serializers.CharField(source="stage.request.state", help_text="Of the request.")
    stage = serializers.SerializerMethodField(help_text="Number of the stage, from 1.")
    stage_name = serializers.CharField(source="stage.name")
    release = serializers.CharField(source="stage.release")
    configuration = serializers.CharField(source="stage.configuration")
    uses = serializers.IntegerField(help_text="Stages that read it.")
    answer = AnswerReader(allow_null=True)

    def get_stage(self, row: DatasetRow) -> int:
        return row.stage.position + 1 if row.stage else 0


class StepReader(serializers.Serializer[Any]):
    """A stage that reads a dataset and writes another one."""

    request = serializers.CharField(source="stage.request.key")
    experiment = serializers.CharField(source="stage.request.experiment.key")
    state = serializers.CharField(source="stage.request.state", help_text="Of the request.")
    stage = serializers.IntegerField(source="number", help_text="Number of the stage, from 1.")
    stage_name = serializers.CharField(source="stage.name")
    release = serializers.CharField(source="stage.release")
    configuration = serializers.CharField(source="stage.configuration")
    input = serializers.CharField(
        source="input_name", help_text="Empty if it reads none, or an output without a name."
    )


class EntryReader(serializers.Serializer[Any]):
    """A dataset of the provenance, and one of the stages that write it."""

    name = serializers.CharField(help_text="Empty for an output without a name.")
    distance = serializers.IntegerField(help_text="Steps between the two datasets.")
    made_by = StepReader(
        source="step", allow_null=True, help_text="Null if no request that you can see writes it."
    )


class DatasetPointReader(serializers.Serializer[Any]):
    """The dataset of one point of a scan."""

    point = serializers.CharField(source="label")
    name = serializers.CharField()
    uses = serializers.IntegerField()


class ProvenanceReader(serializers.Serializer[Any]):
    """A dataset: the stages that write it, what it was made from, what was made from it."""

    name = serializers.CharField()
    made_by = StepReader(source="makers", many=True)
    made_from = EntryReader(many=True, help_text="Nearest first.")
    uses = serializers.IntegerField(help_text="Stages that read it.")
    used_by = EntryReader(many=True, help_text="Nearest first.")
    points = DatasetPointReader(many=True, help_text="Datasets of a name with placeholders.")
    answers: Any = AnswerReader(source="own_answers.rows", many=True)
    has_cycle = serializers.BooleanField(help_text="A dataset is made from itself.")
    is_cut = serializers.BooleanField(help_text="There is more than what is listed.")
