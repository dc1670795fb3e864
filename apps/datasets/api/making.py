"""Datasets that are made of the files of a request, in the API: `/made-datasets/<request>/`.

No call asks a catalogue: workers do.
"""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.accounts.api import ApiRequest, command
from apps.datasets.domain.making import check_may_make, made_datasets_of, order_dataset
from apps.datasets.enums import ChosenFiles
from apps.datasets.models import MadeDataset
from apps.production.api.routes import OfRequests
from apps.production.models import Request
from apps.production.web.lookup import request_or_404


class MadeDatasetReader(serializers.ModelSerializer[MadeDataset]):
    """A dataset of files of a stage; `made_at` is null until the catalogue has made it."""

    catalogue = serializers.CharField(source="catalogue.name")
    error = serializers.CharField(
        source="last_error", help_text="Why the catalogue refused it, or does not answer."
    )

    class Meta:
        model = MadeDataset
        fields = (
            "id",
            "name",
            "catalogue",
            "position",
            "chosen",
            "source",
            "file_count",
            "state",
            "error",
            "requested_by",
            "requested_at",
            "made_at",
        )
        read_only_fields = fields


class MadeDatasetWriter(serializers.Serializer[Any]):
    """Files of a stage, and the name of their dataset in a catalogue."""

    position = serializers.IntegerField(
        min_value=0, max_value=1000, help_text="Position of the stage, from 0."
    )
    chosen = serializers.ChoiceField(choices=ChosenFiles.choices)
    catalogue = serializers.CharField(max_length=64)
    name = serializers.CharField(max_length=500, trim_whitespace=False)


_MADE = MadeDatasetReader(many=True)


class MadeDatasetViewSet(OfRequests):
    """Datasets that are made in catalogues, of files of a request."""

    serializer_class: Any = MadeDatasetReader

    def get_object(self) -> Request:
        production_request = request_or_404(self.request.user, self.kwargs["key"])
        if self.request.method == "POST":
            check_may_make(self.request.user, production_request)
        return production_request

    def respond(self, result: Any, reader: Any = None, code: int = 200) -> Response:
        """Answer with the newest datasets of the request, newest first."""
        return Response(MadeDatasetReader(made_datasets_of(result), many=True).data, status=code)

    @extend_schema(responses=_MADE)
    def retrieve(self, request: ApiRequest, key: str) -> Response:
        """List the newest 20 datasets that were made of files of a request, newest first."""
        return self.respond(self.get_object())

    @command(MadeDatasetWriter, _MADE)
    def make(self, production_request: Request, **fields: Any) -> None:
        """Store that a dataset is to be made; a worker asks the catalogue within a minute.

        Repeating it changes nothing while the files are the same.
        """
        order_dataset(request=production_request, **fields)
