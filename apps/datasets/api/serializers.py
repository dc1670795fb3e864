"""Datasets and their provenance as the API returns them."""

from typing import Any

from rest_framework import serializers

from apps.datasets.domain.listing import DatasetRow
from apps.datasets.models import KnownDataset
from apps.production.models import DatasetPart


class AnswerReader(serializers.ModelSerializer[KnownDataset]):
    """What a catalogue answered. `exists` is null before its first answer."""

    catalogue = serializers.CharField(source="catalogue.name")
    catalogue_error = serializers.CharField(
        source="catalogue.error", help_text="Why the catalogue does not answer; empty if it does."
    )

    class Meta:
        model = KnownDataset
        fields = (
            "catalogue",
            "exists",
            "files",
            "events",
            "size_bytes",
            "answered_at",
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


class DatasetPartReader(serializers.ModelSerializer[DatasetPart]):
    """A dataset of some files of another one, the whole, which the portal defined for a request."""

    request = serializers.CharField(source="request.key", help_text="The request that reads it.")
    made_from_request = serializers.CharField(
        source="split_from.key", help_text="The request that was split, or is recovered."
    )
    is_recovery = serializers.BooleanField(
        source="is_held",
        help_text="It has the files that were missing. Otherwise it is a share of a split request.",
    )

    class Meta:
        model = DatasetPart
        fields = ("name", "whole", "request", "made_from_request", "is_recovery")
        read_only_fields = fields


class EntryReader(serializers.Serializer[Any]):
    """A dataset of the provenance, and one of the stages that write it, or what it is a part of."""

    name = serializers.CharField(help_text="Empty for an output without a name.")
    distance = serializers.IntegerField(help_text="Steps between the two datasets.")
    made_by = StepReader(
        source="step",
        allow_null=True,
        help_text="Null if no request that you can see writes it, or it is a part of another one.",
    )
    part = DatasetPartReader(
        allow_null=True, help_text="What it is a part of; null if this is no part."
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
    part_of = DatasetPartReader(
        source="parts.part_of", many=True, help_text="What it is a part of, newest first."
    )
    parts = DatasetPartReader(
        source="parts.parts", many=True, help_text="Datasets of some of its files, newest first."
    )
    answers: Any = AnswerReader(source="own_answers.rows", many=True)
    has_cycle = serializers.BooleanField(help_text="A dataset is made from itself.")
    is_cut = serializers.BooleanField(help_text="There is more than what is listed.")
