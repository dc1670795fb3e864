"""Data quality in the API: results, posts, runs and waivers."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.exceptions import PermissionDenied
from rest_framework.response import Response

from apps.accounts.api import ApiRequest, command
from apps.datasets.domain.output_files import NamedFile
from apps.production.api.routes import OfRequests
from apps.production.models import Request
from apps.production.web.lookup import request_or_404, stage_or_404
from apps.quality.api import serializers
from apps.quality.checks.facts import Histogram, Posted
from apps.quality.domain import posts, runs
from apps.quality.domain.data_quality import data_quality_of
from apps.quality.models import HistogramPair
from apps.quality.permissions import may_run


class QualityViewSet(OfRequests):
    """Data quality of requests."""

    serializer_class = serializers.DataQualityReader

    def get_object(self) -> Request:
        """Return the request.

        Users who may not waive or post are refused before the body is parsed.
        """
        user = self.request.user
        production_request = request_or_404(user, self.kwargs["key"])
        if self.action in {"waive", "withdraw_waiver"}:
            runs.check_may_waive(production_request, user)
        elif self.request.method == "POST" and not may_run(user, production_request):
            raise PermissionDenied(
                "Only liaisons of the experiment, approvers and shifters can do this."
            )
        return production_request

    def respond(
        self, result: Any, reader: Any = serializers.DataQualityReader, code: int = 200
    ) -> Response:
        """Respond with the stored object, or with the data quality of the request."""
        if not isinstance(result, Request):
            return super().respond(result, reader, code)
        result.refresh_from_db(fields=["state"])
        return super().respond(data_quality_of(result), serializers.DataQualityReader)

    def retrieve(self, request: ApiRequest, key: str) -> Response:
        """Return the data quality of a request: the results of its newest run and all waivers."""
        return self.respond(self.get_object())

    @command(serializers.AgainWriter, serializers.DataQualityReader)
    def again(self, production_request: Request, **fields: Any) -> None:
        """Run the checks of a request again. They also run automatically after a report."""
        runs.ask_for_run(request=production_request, **fields)

    @command(serializers.WaiveWriter, serializers.DataQualityReader)
    def waive(self, production_request: Request, **fields: Any) -> None:
        """Waive a result.

        Only approvers who neither created, edited nor submitted the request can do this.
        """
        runs.waive_result(request=production_request, **fields)

    @command(
        serializers.WithdrawWaiverWriter, serializers.DataQualityReader, url_path="withdraw-waiver"
    )
    def withdraw_waiver(self, production_request: Request, **fields: Any) -> None:
        """Withdraw a waiver while the request is open."""
        runs.withdraw_waiver(request=production_request, **fields)

    @command(serializers.FilesWriter, serializers.PostedReader)
    def files(
        self, production_request: Request, *, stage: int, files: list[dict[str, Any]], **fields: Any
    ) -> dict[str, int]:
        """Post the files of a job. Posting the same `key` again replaces them."""
        named = [NamedFile(**file) for file in files]
        return {
            "noted": posts.name_files(
                stage=stage_or_404(production_request, stage), files=named, **fields
            )
        }

    @extend_schema(
        methods=["get"],
        summary="List the histograms",
        responses=serializers.HistogramReader(many=True),
    )
    @extend_schema(
        methods=["post"],
        summary="Post a histogram with its reference",
        request=serializers.HistogramWriter,
        responses={200: serializers.HistogramReader, 201: serializers.HistogramReader},
    )
    @action(detail=True, methods=["get", "post"])
    def histograms(self, request: ApiRequest, key: str) -> Response:
        """List the histograms, or post one with its reference.

        Posting the same name again replaces it.
        """
        production_request = self.get_object()
        if request.method != "POST":
            pairs = HistogramPair.objects.filter(stage__request=production_request).order_by(
                "stage", "name"
            )
            return Response(serializers.HistogramReader(pairs, many=True).data)

        body = self.domain_arguments(serializers.HistogramWriter)
        stage, by, at = (body.pop(name) for name in ("stage", "by", "at"))
        posted = Histogram(**body)
        row, is_new = posts.post_histogram(
            stage=stage_or_404(production_request, stage), posted=posted, by=by, at=at
        )
        return self.respond(row, serializers.HistogramReader, 201 if is_new else 200)

    @extend_schema(
        request=serializers.ResultWriter,
        responses={200: serializers.ExternalReader, 201: serializers.ExternalReader},
    )
    @action(detail=True, methods=["post"])
    def results(self, request: ApiRequest, key: str) -> Response:
        """Post a result of an external tool. Posting the same name again replaces it."""
        production_request = self.get_object()
        body = self.domain_arguments(serializers.ResultWriter)
        number, by, at = (body.pop(name) for name in ("stage", "by", "at"))
        stage = stage_or_404(production_request, number) if number else None
        row, is_new = posts.post_result(
            request=production_request, stage=stage, posted=Posted(**body), by=by, at=at
        )
        return self.respond(row, serializers.ExternalReader, 201 if is_new else 200)
