"""Data quality in the API: how a request stands, what is posted to be judged by, runs and waivers."""

from typing import Any

from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request as ApiRequest
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from apps.core.api.input import checked_data
from apps.production.models import Request, Stage
from apps.production.web.lookup import request_or_404
from apps.quality.api.serializers import (
    AgainWriter,
    ExternalReader,
    FilesWriter,
    HistogramReader,
    HistogramWriter,
    PostedReader,
    ResultWriter,
    StandingReader,
    WaiveWriter,
    WithdrawWaiverWriter,
    standing_data,
)
from apps.quality.domain import posts, runs
from apps.quality.domain.overview import waivers_of
from apps.quality.domain.standing import standing_of
from apps.quality.models import HistogramPair
from apps.quality.permissions import may_post


class QualityViewSet(GenericViewSet[Any]):
    """Whether what a request has produced is good."""

    queryset = Request.objects.none()
    serializer_class = StandingReader
    pagination_class = None
    filter_backends = ()
    lookup_field = "key"
    lookup_value_regex = "[^/.]+"

    @extend_schema(responses=StandingReader)
    def retrieve(self, request: ApiRequest, key: str) -> Response:
        """Tell how a request stands, with the results of its newest run and all waivers."""
        return self._answer(request_or_404(request.user, key))

    @extend_schema(request=AgainWriter, responses=StandingReader)
    @action(detail=True, methods=["post"])
    def again(self, request: ApiRequest, key: str) -> Response:
        """Have the checks run again; they do so by themselves when something is reported."""
        wanted, given = self._for_poster(key), checked_data(AgainWriter(data=request.data))
        runs.ask_for_run(request=wanted, by=request.user, at=timezone.now(), **given)  # type: ignore[arg-type]
        return self._answer(wanted)

    @extend_schema(request=WaiveWriter, responses=StandingReader)
    @action(detail=True, methods=["post"])
    def waive(self, request: ApiRequest, key: str) -> Response:
        """Waive a result in your own name; an approver who has neither made nor submitted the request may."""
        wanted = request_or_404(request.user, key)
        runs.waive_result(request=wanted, by=request.user, at=timezone.now(), **self._signed(wanted, WaiveWriter))  # type: ignore[arg-type]
        return self._answer(wanted)

    @extend_schema(request=WithdrawWaiverWriter, responses=StandingReader)
    @action(detail=True, methods=["post"], url_path="withdraw-waiver")
    def withdraw_waiver(self, request: ApiRequest, key: str) -> Response:
        """Take back a waiver, as long as the request is not closed."""
        wanted = request_or_404(request.user, key)
        given = self._signed(wanted, WithdrawWaiverWriter)
        runs.withdraw_waiver(request=wanted, by=request.user, at=timezone.now(), **given)  # type: ignore[arg-type]
        return self._answer(wanted)

    @extend_schema(request=FilesWriter, responses=PostedReader)
    @action(detail=True, methods=["post"])
    def files(self, request: ApiRequest, key: str) -> Response:
        """Name files that a job has written, with their sizes; the same `key` again replaces what it named."""
        wanted = self._for_poster(key)
        given = checked_data(FilesWriter(data=request.data))
        files = [posts.NamedFile(**one) for one in given["files"]]
        noted = posts.name_files(
            stage=self._stage(wanted, given["stage"]),
            key=given["key"],
            files=files,
            by=request.user,  # type: ignore[arg-type]
            at=timezone.now(),
        )
        return Response({"noted": noted})

    @extend_schema(methods=["get"], responses=HistogramReader(many=True))
    @extend_schema(methods=["post"], request=HistogramWriter, responses={200: HistogramReader, 201: HistogramReader})
    @action(detail=True, methods=["get", "post"])
    def histograms(self, request: ApiRequest, key: str) -> Response:
        """List the histograms posted, or post one beside its reference; the same name again replaces it."""
        if request.method != "POST":
            wanted = request_or_404(request.user, key)
            rows = HistogramPair.objects.filter(stage__request=wanted).order_by("stage", "name")
            return Response(HistogramReader(rows, many=True).data)
        wanted = self._for_poster(key)
        given = checked_data(HistogramWriter(data=request.data))
        row, is_new = posts.post_histogram(
            stage=self._stage(wanted, given.pop("stage")),
            by=request.user,  # type: ignore[arg-type]
            at=timezone.now(),
            **given,
        )
        return Response(HistogramReader(row).data, status=_made(is_new))

    @extend_schema(request=ResultWriter, responses={200: ExternalReader, 201: ExternalReader})
    @action(detail=True, methods=["post"])
    def results(self, request: ApiRequest, key: str) -> Response:
        """Post what a tool outside the portal says; the same name again replaces what it said."""
        wanted = self._for_poster(key)
        given = checked_data(ResultWriter(data=request.data))
        number = given.pop("stage")
        row, is_new = posts.post_result(
            request=wanted,
            stage=self._stage(wanted, number) if number else None,
            by=request.user,  # type: ignore[arg-type]
            at=timezone.now(),
            **given,
        )
        return Response(ExternalReader(row).data, status=_made(is_new))

    def _for_poster(self, key: str) -> Request:
        wanted = request_or_404(self.request.user, key)
        if not may_post(self.request.user, wanted):
            raise PermissionDenied("Only a liaison of the experiment, an approver or a shifter of the OPG may do this.")
        return wanted

    def _stage(self, wanted: Request, number: int) -> Stage:
        stages = Stage.objects.select_related("request__experiment").filter(request=wanted)
        return get_object_or_404(stages, position=number - 1)

    def _signed(self, wanted: Request, writer: type[Any]) -> dict[str, Any]:
        """Read the body of somebody who may sign; others are refused before it is looked at."""
        runs.check_may_waive(wanted, self.request.user)  # type: ignore[arg-type]
        return checked_data(writer(data=self.request.data))

    def _answer(self, wanted: Request) -> Response:
        wanted.refresh_from_db(fields=["state"])
        return Response(standing_data(wanted.key, wanted.state, standing_of(wanted), waivers_of(wanted)))


def _made(is_new: bool) -> int:
    return status.HTTP_201_CREATED if is_new else status.HTTP_200_OK
