"""Output files in the API, as jobs and users report them."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.api import ApiRequest
from apps.core.api.input import checked_data
from apps.core.api.machine_tokens import HasMachineToken
from apps.core.api.views import StrictView
from apps.datasets.domain.output_files import (
    FILES_A_REPORT,
    LARGEST,
    MAX_CHECKSUM,
    PARENTS_A_FILE,
    NamedFile,
)
from apps.datasets.models import MAX_FILE_NAME
from apps.jobs.api.phases import PhaseTokenAuthentication
from apps.production.api.outputs import OutputReader, OutputWriter, StageView
from apps.production.domain.outputs.counts import QUANTITIES
from apps.submission.domain.arrays.output_files import report_job_files, report_output_with_files

_MAX_PARENT_NAME = 1_000


class FileWriter(serializers.Serializer[Any]):
    """An output file."""

    name = serializers.CharField(max_length=MAX_FILE_NAME, trim_whitespace=False)
    size_bytes = serializers.IntegerField(min_value=0, max_value=LARGEST)
    events = serializers.IntegerField(
        min_value=0, max_value=LARGEST, required=False, allow_null=True, default=None
    )
    run = serializers.IntegerField(
        min_value=0, max_value=LARGEST, required=False, allow_null=True, default=None
    )
    checksum = serializers.CharField(
        max_length=MAX_CHECKSUM,
        required=False,
        allow_blank=True,
        default="",
        help_text="adler32:, md5: or sha256: and the hexadecimal digits.",
    )
    parents = serializers.ListField(
        child=serializers.CharField(max_length=_MAX_PARENT_NAME, trim_whitespace=False),
        max_length=PARENTS_A_FILE,
        required=False,
        default=list,
        help_text="Names of the input files that it was made of. Empty: all of its job.",
    )


class ListedOutputWriter(OutputWriter):
    """Input and output of one job, or of several counted together, with its files.

    Sending a `key` again replaces its report, and its files if some are listed.
    """

    files = serializers.ListField(
        child=FileWriter(),
        min_length=1,
        max_length=FILES_A_REPORT,
        required=False,
        allow_null=True,
        default=None,
        help_text="Output files. files_out and events_out follow from them.",
    )


class Outputs(StageView):
    """Reports of jobs on what they read and wrote."""

    @extend_schema(request=ListedOutputWriter, responses={200: OutputReader, 201: OutputReader})
    def post(self, request: ApiRequest, key: str, number: int) -> Response:
        """Report input and output of one job: 201 for a new key, 200 if it replaces a report."""
        stage = self.stage()
        body = self.domain_arguments(ListedOutputWriter)
        counts = {name: body.pop(name) for name in QUANTITIES}
        files = body.pop("files")
        named = None if files is None else [NamedFile(**file) for file in files]
        report, created = report_output_with_files(stage=stage, counts=counts, files=named, **body)
        return Response(OutputReader(report).data, status=201 if created else 200)


class JobFilesWriter(serializers.Serializer[Any]):
    """Output files of one job. `job_id` is written as the portal shows it, such as 4711_3."""

    job_id = serializers.CharField(max_length=64)
    files = serializers.ListField(child=FileWriter(), min_length=1, max_length=FILES_A_REPORT)
    replaces = serializers.BooleanField(
        required=False,
        default=False,
        help_text="They replace all files of the job, not only those of the same names.",
    )


class JobFilesReader(serializers.Serializer[Any]):
    """What became of the files."""

    stored = serializers.IntegerField()
    counts = serializers.BooleanField(
        help_text="They count now. If not, they do once accounting says that the job completed."
    )
    note = serializers.CharField(help_text="Why they were not stored.")


class JobFilesView(StrictView):
    """Output files of jobs, as the jobs report them."""

    authentication_classes = [PhaseTokenAuthentication]
    permission_classes = [HasMachineToken]

    @extend_schema(
        operation_id="job_files_create", request=JobFilesWriter, responses=JobFilesReader
    )
    def post(self, request: Request) -> Response:
        """Store output files of one job, with the token with which it reports phases.

        Repeating a report changes nothing. All files are stored, or none. Those of tests and debug
        re-runs are not stored.
        """
        report = checked_data(JobFilesWriter(data=request.data))
        token: Any = request.auth
        report["files"] = [NamedFile(**file) for file in report["files"]]
        stored = report_job_files(token=token, at=timezone.now(), **report)
        return Response(JobFilesReader(stored).data)
