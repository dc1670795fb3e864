"""Input datasets of a request that are brought to disk, in the API: `/staging/<request>/`.

No call asks a catalogue: workers do.
"""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.accounts.api import ApiRequest, command
from apps.core.errors import InvalidFields
from apps.datasets.domain.staging import (
    ask_now,
    cancel_waiting,
    check_may_stage,
    request_staging,
)
from apps.datasets.models import StagingRequest
from apps.production.api.routes import OfRequests
from apps.production.models import Request
from apps.production.web.lookup import request_or_404


class StagingReader(serializers.ModelSerializer[StagingRequest]):
    """A dataset that is brought to disk. Numbers of files are null before the first answer."""

    catalogue = serializers.CharField(source="catalogue.name")
    error = serializers.CharField(
        source="last_error", help_text="Why the catalogue refused it, or does not answer."
    )

    class Meta:
        model = StagingRequest
        fields = (
            "id",
            "dataset",
            "catalogue",
            "storage",
            "lifetime_seconds",
            "state",
            "error",
            "external_id",
            "files_on_disk",
            "files_waiting",
            "files_stuck",
            "catalogue_state",
            "catalogue_error",
            "progress_at",
            "expires_at",
            "requested_by",
            "requested_at",
            "finish_by",
        )
        read_only_fields = fields


class StagingWriter(serializers.Serializer[Any]):
    """An input dataset of the request."""

    dataset = serializers.CharField(max_length=500, trim_whitespace=False)


class StagingChoice(serializers.Serializer[Any]):
    """A dataset of the list that is brought to disk."""

    staging = serializers.IntegerField(min_value=1, max_value=2**63 - 1, help_text="Its `id`.")


_STAGINGS = StagingReader(many=True)


class StagingViewSet(OfRequests):
    """Input datasets of a request that are brought to disk."""

    serializer_class: Any = StagingReader

    def get_object(self) -> Request:
        production_request = request_or_404(self.request.user, self.kwargs["key"])
        if self.request.method == "POST":
            check_may_stage(self.request.user, production_request)
        return production_request

    def respond(self, result: Any, reader: Any = None, code: int = 200) -> Response:
        """Answer with all stagings of the request, newest first."""
        stagings = StagingRequest.objects.filter(request=result).select_related("catalogue")
        return Response(StagingReader(stagings.order_by("-pk"), many=True).data, status=code)

    @extend_schema(responses=_STAGINGS)
    def retrieve(self, request: ApiRequest, key: str) -> Response:
        """List the datasets of a request that are or were brought to disk, newest first."""
        return self.respond(self.get_object())

    @command(StagingWriter, _STAGINGS)
    def stage(self, production_request: Request, **fields: Any) -> None:
        """Store that a dataset is to be brought to disk; a worker sends it within a minute.

        Repeating it changes nothing while the portal follows the first one.
        """
        request_staging(request=production_request, **fields)

    @command(StagingChoice, _STAGINGS)
    def ask(self, production_request: Request, *, staging: int, **fields: Any) -> None:
        """Let a worker ask the catalogue for the progress now."""
        ask_now(staging=_of_request(production_request, staging), **fields)

    @command(StagingChoice, _STAGINGS)
    def cancel(self, production_request: Request, *, staging: int, **fields: Any) -> None:
        """Stop following a dataset. The catalogue's own request stays."""
        cancel_waiting(staging=_of_request(production_request, staging), **fields)


def _of_request(production_request: Request, key: int) -> StagingRequest:
    """Return a staging of a request. Raises `InvalidFields` if it is not of this request."""
    staging = StagingRequest.objects.filter(request=production_request, pk=key).first()
    if staging is None:
        raise InvalidFields({"staging": ["The request has no such staging."]})
    return staging
