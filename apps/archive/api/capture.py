"""API for capture: batches of jobs and status reports."""

from typing import Any, NamedTuple

from django.conf import settings
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, inline_serializer
from rest_framework import serializers, status
from rest_framework.exceptions import APIException, AuthenticationFailed, ParseError
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from apps.archive.domain.capture_hosts import host_of, receive_batch, receive_report
from apps.archive.domain.intake import IntakeFull, JournalOutdated
from apps.archive.models import CaptureHost
from apps.core.api.errors import TooLarge
from apps.core.api.input import checked_data
from apps.core.api.machine_tokens import HasMachineToken, MachineTokenAuthentication
from apps.core.api.views import StrictView
from apps.core.domain.quotas import DAY, Quota
from apps.jobs.domain.collection.masking_rules import current_rules
from capture.wire.batches import (
    MEDIA_TYPE,
    MOST_SENT_BYTES,
    BadBatch,
    BatchTooLarge,
    unpack_untrusted,
)
from capture.wire.entry import CapturedJob
from capture.wire.report import CaptureReport


class Unreadable(APIException):
    """Not 400, which may come of anything on the way:
    a sender gives up what is answered with this.
    """

    status_code = status.HTTP_422_UNPROCESSABLE_ENTITY


class Full(APIException):
    """Too much waits already: the sender keeps the batch."""

    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    wait = 30  # seconds, which become the header Retry-After


class Outdated(APIException):
    """The sender gives its journal another name."""

    status_code = status.HTTP_409_CONFLICT


class CaptureHostAuthentication(MachineTokenAuthentication):
    """Authenticates a capture host by its token."""

    realm = "capture"
    scheme_name = "captureHost"

    def read_token(self, token: str) -> CaptureHost:
        host = host_of(token)
        if host is None:
            raise AuthenticationFailed("This token is that of no capture host.")
        return host


class SentBatch(NamedTuple):
    """The jobs of a batch, and the bytes that they came in."""

    jobs: list[CapturedJob]
    content: bytes


class BatchParser(BaseParser):
    """Reads a batch of jobs, of a bounded size also when it is unpacked."""

    media_type = MEDIA_TYPE

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        try:
            content = stream.read()
            return SentBatch(unpack_untrusted(content), content)
        except BatchTooLarge as error:
            raise TooLarge(f"The batch cannot be taken: {error}.") from error
        except BadBatch as error:
            raise Unreadable(f"The batch cannot be read: {error}.") from error


class CaptureRequest(Request):
    auth: CaptureHost


class CaptureView(StrictView):
    authentication_classes = [CaptureHostAuthentication]
    permission_classes = [HasMachineToken]


class BatchSerializer(serializers.Serializer):
    cluster = serializers.CharField(max_length=64)
    journal = serializers.UUIDField(help_text="Identity of the sender's journal.")
    sequence = serializers.IntegerField(
        min_value=1,
        max_value=2**63 - 1,
        help_text="Number of the batch's last job in that journal; batches come in order.",
    )


class ReceiveBatch(CaptureView):
    """Keep a batch of captured jobs for the workers, durably.

    A batch of a journal and sequence that came before is not kept twice.
    """

    parser_classes = [BatchParser]
    max_body_bytes = MOST_SENT_BYTES

    @extend_schema(
        parameters=[BatchSerializer],
        request={MEDIA_TYPE: OpenApiTypes.BINARY},
        responses=inline_serializer("ReceivedBatch", {"received": serializers.BooleanField()}),
    )
    def post(self, request: CaptureRequest) -> Response:
        batch = checked_data(BatchSerializer(data=request.query_params))
        at = timezone.now()
        size = int(request.META.get("CONTENT_LENGTH") or 0)
        quota = Quota("capture-bytes", settings.CAPTURE_HOST_MAX_BYTES_PER_DAY, DAY)
        if quota.add(request.auth.pk, 0, at=at) >= quota.most:
            raise Full(
                f"This host has sent {quota.most:,} bytes of captured jobs today, the most in "
                "a day."
            )

        sent: Any = request.data  # unpacks the batch
        if not isinstance(sent, SentBatch) or not sent.jobs:
            raise ParseError("No jobs came, or a batch of no stated length.")
        try:
            received = receive_batch(
                host=request.auth, jobs=sent.jobs, content=sent.content, at=at, **batch
            )
        except IntakeFull as error:
            raise Full(f"The portal cannot take more for now: {error}.") from error
        except JournalOutdated as error:
            raise Outdated(f"The batch may be another one: {error}.") from error
        if received:
            quota.add(request.auth.pk, size, at=at)
        return Response({"received": received})


class ReportSerializer(serializers.Serializer):
    cluster = serializers.CharField(max_length=64)
    report = serializers.JSONField()


class Report(CaptureView):
    """The reports of captures, and the masking rules that they apply."""

    @extend_schema(request=ReportSerializer, responses={204: None})
    def post(self, request: CaptureRequest) -> Response:
        """Store the report of a capture."""
        said = checked_data(ReportSerializer(data=request.data))
        report = CaptureReport.from_detail(said["report"])
        receive_report(host=request.auth, cluster=said["cluster"], report=report, at=timezone.now())
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(
        responses=inline_serializer(
            "MaskingRulesInForce",
            {"masking_rules": serializers.ListField(child=serializers.ListField())},
        )
    )
    def get(self, request: Request) -> Response:
        """Return the masking rules in force."""
        return Response(
            {"masking_rules": [[rule.applies_to, rule.pattern] for rule in current_rules()]}
        )
