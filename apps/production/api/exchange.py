"""Requests as YAML in the API."""

import json
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import parsers, renderers, serializers, status
from rest_framework.decorators import action
from rest_framework.response import Response

from apps.accounts.api import ApiRequest, allowed_by
from apps.core.api.input import JSONParser
from apps.core.errors import InvalidFields, NotAllowed
from apps.core.web.turns import one_at_a_time
from apps.production.api.routes import RequestRoutes
from apps.production.api.serializers import RequestReader
from apps.production.domain.requests.exchange import export_request, import_request
from apps.production.permissions import may_create


class YamlParser(parsers.BaseParser):
    """A body of YAML, parsed as the single field `yaml`."""

    media_type = "application/yaml"

    def parse(
        self, stream: Any, media_type: str | None = None, parser_context: Any = None
    ) -> dict[str, str]:
        try:
            return {"yaml": stream.read().decode("utf-8-sig")}
        except UnicodeDecodeError:
            raise InvalidFields({"yaml": ["Not valid UTF-8."]}) from None


class YamlRenderer(renderers.BaseRenderer):
    """Text unchanged. Errors are JSON, which is valid YAML."""

    media_type = "application/yaml"
    format = "yaml"
    charset = "utf-8"

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None
    ) -> bytes:
        if isinstance(data, str):
            return data.encode()
        renderer_context["response"]["Content-Type"] = "application/json"
        return json.dumps(data).encode()


class YamlWriter(serializers.Serializer[Any]):
    """A request in YAML."""

    yaml = serializers.CharField(trim_whitespace=False)


class YamlRoutes(RequestRoutes):
    @extend_schema(responses={(200, "application/yaml"): OpenApiTypes.ANY})
    @action(detail=True, methods=["get"], renderer_classes=[YamlRenderer, renderers.JSONRenderer])
    def yaml(self, request: ApiRequest, key: str) -> Response:
        """Return the request in YAML, the format of `import/`."""
        return Response(
            export_request(self.get_object()), content_type="application/yaml; charset=utf-8"
        )

    @allowed_by(lambda user, _: may_create(user))
    @extend_schema(
        request={"application/yaml": OpenApiTypes.STR, "application/json": YamlWriter},
        responses={
            201: RequestReader,
            400: OpenApiResponse(description="All problems, by field path and line."),
        },
    )
    @action(
        detail=False, methods=["post"], url_path="import", parser_classes=[JSONParser, YamlParser]
    )
    @one_at_a_time
    def import_yaml(self, request: ApiRequest) -> Response:
        """Create a draft from YAML. Liaisons of the experiment only."""
        # Check the permission before the text is parsed.
        if not may_create(request.user):
            raise NotAllowed("Only liaisons can create requests.")
        body = self.domain_arguments(YamlWriter)
        made = import_request(text=body.pop("yaml"), **body)
        return self.respond(made, RequestReader, status.HTTP_201_CREATED)
