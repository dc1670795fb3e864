"""Post the end of a log, with the token with which a job reports its phases."""

from typing import Any

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.core.api.input import checked_data
from apps.core.api.machine_tokens import HasMachineToken
from apps.diagnosis.domain.reading.posted_logs import MOST_BYTES, store_posted_log
from apps.diagnosis.enums import Stream
from apps.jobs.api.phases import PhaseTokenAuthentication

_MEDIA_TYPE = "application/octet-stream"


class BytesParser(BaseParser):
    """Reads a body without parsing it."""

    media_type = _MEDIA_TYPE

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        return stream.read()


class PostedLogQuery(serializers.Serializer[Any]):
    """The log whose end is posted; `job_id` is the ID that the portal shows, such as 4711_3."""

    job_id = serializers.CharField(max_length=64)
    stream = serializers.ChoiceField(choices=Stream.choices, default=Stream.STDOUT)
    offset = serializers.IntegerField(
        min_value=0,
        max_value=2**60,
        default=0,
        help_text="Offset in the log at which the body starts.",
    )


class PostedLogsView(APIView):
    """Logs that jobs post."""

    authentication_classes = [PhaseTokenAuthentication]
    permission_classes = [HasMachineToken]
    parser_classes = [BytesParser]
    max_body_bytes = MOST_BYTES

    @extend_schema(
        operation_id="job_logs_create",
        parameters=[PostedLogQuery],
        request={_MEDIA_TYPE: OpenApiTypes.BINARY},
        responses={204: None},
    )
    def post(self, request: Request) -> Response:
        """Store the end of a log, at most 1 MB.

        It is analysed after the end of the job if the job's own log cannot be read.
        """
        query = checked_data(PostedLogQuery(data=request.query_params))
        data: Any = request.data
        token: Any = request.auth
        if not isinstance(data, bytes) or not data:
            raise ParseError("Send the end of the log as the body.")
        query["stream"] = Stream(query["stream"])
        store_posted_log(token=token, data=data, at=timezone.now(), **query)
        return Response(status=status.HTTP_204_NO_CONTENT)
