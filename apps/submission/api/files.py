"""The files of the stages of a request in the API: `/files/<request>/`."""

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.response import Response

from apps.accounts.api import ApiRequest, command
from apps.core.api.pagination import NewestFirst
from apps.core.web.query import number_of
from apps.datasets.domain.output_files import parents_of
from apps.datasets.enums import FileState
from apps.datasets.models import FileTotals, InputFile, OutputFile
from apps.production.api.routes import OfRequests
from apps.production.domain.reasons import MAX_REASON
from apps.production.models import Request, Stage
from apps.production.web.lookup import request_or_404, stage_or_404
from apps.submission.domain.files import decisions, recovery

_STAGE = OpenApiParameter("stage", int, description="Number of the stage. Default: 1.")
_STATE = OpenApiParameter("state", str, enum=FileState.values)


class FileTotalsReader(serializers.ModelSerializer[FileTotals]):
    """How many input files of a stage are in each state; `files` is their sum."""

    stage = serializers.SerializerMethodField(help_text="Number of the stage, from 1.")
    name = serializers.CharField(source="stage.name")
    merges = serializers.SerializerMethodField(
        help_text="Number of the stage whose output files it merges. Null: it merges none."
    )

    class Meta:
        model = FileTotals
        fields = [
            "stage",
            "name",
            "files",
            "waiting",
            "taken",
            "done",
            "failed",
            "given_up",
            "doubled",
            "merges",
            "listed_at",
            "checked_at",
        ]

    def get_stage(self, totals: FileTotals) -> int:
        return totals.stage.position + 1

    def get_merges(self, totals: FileTotals) -> int | None:
        return totals.source.position + 1 if totals.source else None


class InputFileReader(serializers.ModelSerializer[InputFile]):
    """An input file. `number` is that of its job, `job` the ID of the job that counts.

    In a merge stage, `source_number` is that of the job that wrote it.
    """

    job = serializers.IntegerField(source="job_key", allow_null=True)

    class Meta:
        model = InputFile
        fields = [
            "id",
            "name",
            "run",
            "events",
            "size_bytes",
            "state",
            "number",
            "job",
            "is_doubled",
            "source_number",
            "is_withdrawn",
            "reason",
            "decided_by",
            "changed_at",
        ]


class OutputFileReader(serializers.ModelSerializer[OutputFile]):
    """An output file as its job reported it."""

    parents = serializers.SerializerMethodField(
        help_text="Names of the input files that it was made of. Empty: all of its job."
    )

    class Meta:
        model = OutputFile
        fields = [
            "id",
            "name",
            "key",
            "number",
            "counts",
            "run",
            "events",
            "size_bytes",
            "checksum",
            "at",
            "by",
            "parents",
        ]

    def get_parents(self, file: OutputFile) -> list[str]:
        parents: dict[int, list[str]] = self.context["parents"]
        return parents[file.pk]


class FileDecisionWriter(serializers.Serializer[Any]):
    """Files of a stage, and why. Without names, all that the action applies to."""

    position = serializers.IntegerField(min_value=0, help_text="Position of the stage, from 0.")
    names = serializers.ListField(
        child=serializers.CharField(max_length=1_000, trim_whitespace=False),
        required=False,
        default=list,
        max_length=decisions.MOST_FILES,
    )
    reason = serializers.CharField(max_length=MAX_REASON, required=False, default="")


class CountWriter(serializers.Serializer[Any]):
    """The job whose result counts for a file that was done twice."""

    position = serializers.IntegerField(min_value=0, help_text="Position of the stage, from 0.")
    file = serializers.IntegerField(min_value=1, help_text="ID of the input file.")
    job = serializers.IntegerField(min_value=1, help_text="ID of the job.")
    reason = serializers.CharField(max_length=MAX_REASON, required=False, default="")


class MissingWriter(serializers.Serializer[Any]):
    """The stage whose missing files are requested."""

    position = serializers.IntegerField(min_value=0, help_text="Position of the stage, from 0.")


class DraftedReader(serializers.Serializer[Any]):
    """The drafted request."""

    key = serializers.CharField()
    url = serializers.CharField(source="get_absolute_url")


_TOTALS = FileTotalsReader(many=True)


class FilesViewSet(OfRequests):
    """Input and output files of the stages of a request."""

    serializer_class: Any = FileTotalsReader

    def get_object(self) -> Request:
        production_request = request_or_404(self.request.user, self.kwargs["key"])
        if self.action == "request_missing":
            recovery.check_may_request_missing(self.request.user, production_request)
        elif self.request.method == "POST":
            decisions.check_may_decide(self.request.user, production_request)
        return production_request

    def respond(self, result: Any, reader: Any = None, code: int = 200) -> Response:
        """Answer with the totals of the request, or with another request that was drafted."""
        if result.key != self.kwargs["key"]:
            return Response(DraftedReader(result).data, status=code)
        file_totals = FileTotals.objects.filter(stage__request=result).select_related(
            "stage", "source"
        )
        return Response(FileTotalsReader(file_totals.order_by("stage__position"), many=True).data)

    @extend_schema(responses=_TOTALS)
    def retrieve(self, request: ApiRequest, key: str) -> Response:
        """List the stages whose files the portal follows, with the number of files by state."""
        return self.respond(self.get_object())

    @extend_schema(parameters=[_STAGE, _STATE], responses=InputFileReader(many=True))
    @action(
        detail=True, url_path="inputs", pagination_class=NewestFirst,
        serializer_class=InputFileReader,
    )  # fmt: skip
    def inputs(self, request: ApiRequest, key: str) -> Response:
        """List the input files of a stage, newest first."""
        files = InputFile.objects.filter(stage=self._stage())
        state = request.query_params.get("state", "")
        if state in FileState.values:
            files = files.filter(state=state)
        page = self._page_of(files)
        return self.get_paginated_response(InputFileReader(page, many=True).data)

    @extend_schema(parameters=[_STAGE], responses=OutputFileReader(many=True))
    @action(
        detail=True, url_path="outputs", pagination_class=NewestFirst,
        serializer_class=OutputFileReader,
    )  # fmt: skip
    def outputs(self, request: ApiRequest, key: str) -> Response:
        """List the output files of a stage, newest first."""
        files = self._page_of(OutputFile.objects.filter(stage=self._stage()))
        reader = OutputFileReader(files, many=True, context={"parents": parents_of(files)})
        return self.get_paginated_response(reader.data)

    @command(FileDecisionWriter, _TOTALS, url_path="give-up")
    def give_up(self, production_request: Request, **fields: Any) -> None:
        """Give up waiting and failed files of a stage; needs a reason."""
        decisions.give_up(request=production_request, **fields)

    @command(FileDecisionWriter, _TOTALS, url_path="take-back")
    def take_back(self, production_request: Request, **fields: Any) -> None:
        """Let files that were given up wait for a job again."""
        decisions.take_back(request=production_request, **fields)

    @command(CountWriter, _TOTALS)
    def count(self, production_request: Request, **fields: Any) -> None:
        """Choose which result counts for a file that was done twice."""
        decisions.count_result(request=production_request, **fields)

    @command(MissingWriter, DraftedReader, code=201, url_path="request-missing")
    def request_missing(self, production_request: Request, **fields: Any) -> Request:
        """Draft a request for the waiting and failed files of a stage, and give them up here."""
        return recovery.request_missing(request=production_request, **fields)

    def _stage(self) -> Stage:
        number = number_of(self.request.query_params.get("stage", "")) or 1
        return stage_or_404(self.get_object(), number)

    def _page_of(self, rows: QuerySet[Any]) -> list[Any]:
        page: list[Any] = self.paginate_queryset(rows) or []
        return page
