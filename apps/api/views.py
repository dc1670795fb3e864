"""The OpenAPI schema and the versions."""

from functools import lru_cache
from typing import Any

from django.conf import settings
from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework import serializers
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.api.schema import whole_schema


class SchemaView(SpectacularAPIView):
    """The schema, without login: it contains no data, and tools read it before they have a token."""

    permission_classes = [AllowAny]

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        renderer = request.accepted_renderer
        disposition = f'inline; filename="opsportal.{renderer.format}"'
        headers = {"Content-Disposition": disposition, "Vary": "Accept"}
        return HttpResponse(_written(renderer.media_type), content_type=renderer.media_type, headers=headers)


class VersionSerializer(serializers.Serializer[dict[str, str]]):
    portal = serializers.CharField(help_text="Version of the portal, such as `0.1.0`.")
    api = serializers.CharField(help_text="Version of the API, as in its addresses: `1`.")


class VersionView(APIView):
    """The versions, without login, for tools that work with several portals."""

    permission_classes = [AllowAny]

    @extend_schema(responses=VersionSerializer)
    def get(self, request: Request) -> Response:
        """Versions of the portal and of its API."""
        versions = {"portal": str(settings.PORTAL_VERSION), "api": str(settings.SPECTACULAR_SETTINGS["VERSION"])}
        return Response(VersionSerializer(versions).data)


def write_ahead() -> None:
    """Write the schema in the default format before the first request."""
    _written(SchemaView.renderer_classes[0].media_type)


@lru_cache
def _written(media_type: str) -> str | bytes:
    """Return the schema in one of four formats, written once each: it is long and does not depend on data."""
    renderer = next(form() for form in SchemaView.renderer_classes if form.media_type == media_type)
    text: str | bytes = renderer.render(whole_schema(), media_type, {})
    return text
