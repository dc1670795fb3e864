"""Data quality in the API: how a request stands, what is posted to be judged by, runs and waivers."""

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.exceptions import PermissionDenied
from rest_framework.response import Response

from apps.accounts.api import ApiRequest, command
from apps.production.api.routes import OfRequests
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
)
from apps.quality.domain import posts, runs
from apps.quality.domain.overview import waivers_of
from apps.quality.domain.standing import standing_of
from apps.quality.models import HistogramPair
from apps.quality.permissions import may_run


class QualityViewSet(OfRequests):
    """Whether what a request has produced is good."""

    serializer_class = StandingReader

    def get_object(self) -> Request:
        """Return the request; those who may not sign or post are refused before their body is looked at."""
        user = self.request.user
        wanted = request_or_404(user, self.kwargs["key"])
        if self.action in {"waive", "withdraw_waiver"}:
            runs.check_may_waive(wanted, user)
        elif self.request.method == "POST" and not may_run(user, wanted):
            raise PermissionDenied("Only a liaison of the experiment, an approver or a shifter of the OPG may do this.")
        return wanted

    def answer(self, done: Any, reader: Any = StandingReader, code: int = 200) -> Response:
        """Answer with what was noted, or with how the request stands."""
        if not isinstance(done, Request):
            return super().answer(done, reader, code)
        done.refresh_from_db(fields=["state"])
        standing = standing_of(done)
        told = {
            "request": done.key,
            "state": done.state,
            "passes": standing.passes,
            "is_stale": standing.is_stale,
            "run": standing.run,
            "results": [one.result for one in standing.rated],
            "waivers": waivers_of(done),
        }
        rated = {one.result.pk: one for one in standing.rated}
        return Response(StandingReader(told, context={"rated": rated}).data)

    def retrieve(self, request: ApiRequest, key: str) -> Response:
        """Tell how a request stands, with the results of its newest run and all waivers."""
        return self.answer(self.get_object())

    @command(AgainWriter, StandingReader)
    def again(self, wanted: Request, **given: Any) -> None:
        """Have the checks run again; they do so by themselves when something is reported."""
        runs.ask_for_run(request=wanted, **given)

    @command(WaiveWriter, StandingReader)
    def waive(self, wanted: Request, **given: Any) -> None:
        """Waive a result in your own name; an approver who has neither made nor submitted the request may."""
        runs.waive_result(request=wanted, **given)

    @command(WithdrawWaiverWriter, StandingReader, url_path="withdraw-waiver")
    def withdraw_waiver(self, wanted: Request, **given: Any) -> None:
        """Take back a waiver, as long as the request is not closed."""
        runs.withdraw_waiver(request=wanted, **given)

    @command(FilesWriter, PostedReader)
    def files(self, wanted: Request, *, stage: int, files: list[dict[str, Any]], **given: Any) -> dict[str, int]:
        """Name files that a job has written, with their sizes; the same `key` again replaces what it named."""
        named = [posts.NamedFile(**one) for one in files]
        return {"noted": posts.name_files(stage=self._stage(wanted, stage), files=named, **given)}

    @extend_schema(methods=["get"], responses=HistogramReader(many=True))
    @extend_schema(methods=["post"], request=HistogramWriter, responses={200: HistogramReader, 201: HistogramReader})
    @action(detail=True, methods=["get", "post"])
    def histograms(self, request: ApiRequest, key: str) -> Response:
        """List the histograms posted, or post one beside its reference; the same name again replaces it."""
        wanted = self.get_object()
        if request.method != "POST":
            rows = HistogramPair.objects.filter(stage__request=wanted).order_by("stage", "name")
            return Response(HistogramReader(rows, many=True).data)
        given = self.given(HistogramWriter)
        row, is_new = posts.post_histogram(**{**given, "stage": self._stage(wanted, given["stage"])})
        return self.answer(row, HistogramReader, 201 if is_new else 200)

    @extend_schema(request=ResultWriter, responses={200: ExternalReader, 201: ExternalReader})
    @action(detail=True, methods=["post"])
    def results(self, request: ApiRequest, key: str) -> Response:
        """Post what a tool outside the portal says; the same name again replaces what it said."""
        wanted, given = self.get_object(), self.given(ResultWriter)
        stage = self._stage(wanted, given["stage"]) if given["stage"] else None
        row, is_new = posts.post_result(request=wanted, **{**given, "stage": stage})
        return self.answer(row, ExternalReader, 201 if is_new else 200)

    def _stage(self, wanted: Request, number: int) -> Stage:
        stages = Stage.objects.select_related("request__experiment").filter(request=wanted)
        return get_object_or_404(stages, position=number - 1)
