"""The index, the OpenAPI schema and its page, and the versions."""

from functools import lru_cache
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework import serializers
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core.api.operations import operations, whole_schema
from apps.core.api.views import StrictView


class SchemaView(SpectacularAPIView):
    """The schema, without login.

    It contains no data, and tools read it before they have a token.
    """

    permission_classes = [AllowAny]

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        renderer = request.accepted_renderer
        disposition = f'inline; filename="opsportal.{renderer.format}"'
        headers = {"Content-Disposition": disposition, "Vary": "Accept"}
        return HttpResponse(
            _written(renderer.media_type), content_type=renderer.media_type, headers=headers
        )


class IndexSerializer(serializers.Serializer[dict[str, Any]]):
    portal = serializers.CharField(help_text="Version of the portal, such as `0.2.0`.")
    api = serializers.CharField(help_text="Version of the API, as in its addresses: `1`.")
    openapi = serializers.URLField(help_text="The schema of every route.")
    reference = serializers.URLField(help_text="The same as a page, on which calls can be tried.")
    routes = serializers.DictField(
        child=serializers.URLField(), help_text="Addresses without parameters, by name."
    )


class IndexView(StrictView):
    """The entry point of the API, without login."""

    permission_classes = [AllowAny]

    @extend_schema(responses=IndexSerializer)
    def get(self, request: Request) -> Response:
        """Return the versions of portal and API, and the URLs of all collections."""
        root = reverse("api:index")
        paths = sorted(path for path, method in operations() if method == "get" and "{" not in path)
        routes = {}
        for path in paths:
            if path != root:
                routes[path.removeprefix(root).strip("/")] = request.build_absolute_uri(path)
        index = {
            **_versions(),
            "openapi": request.build_absolute_uri(reverse("api:schema")),
            "reference": request.build_absolute_uri(reverse("api:reference")),
            "routes": routes,
        }
        return Response(IndexSerializer(index).data)


@require_safe
def reference(request: HttpRequest) -> HttpResponse:
    """Show the schema as a page, in the user's session."""
    return render(request, "api/reference.html")


class VersionSerializer(serializers.Serializer[dict[str, str]]):
    portal = serializers.CharField(help_text="Version of the portal, such as `0.2.0`.")
    api = serializers.CharField(help_text="Version of the API, as in its addresses: `1`.")


class VersionView(StrictView):
    """The versions, without login, for tools that work with several portals."""

    permission_classes = [AllowAny]

    @extend_schema(responses=VersionSerializer)
    def get(self, request: Request) -> Response:
        """Return the versions of the portal and of its API."""
        return Response(VersionSerializer(_versions()).data)


def _versions() -> dict[str, str]:
    return {
        "portal": str(settings.PORTAL_VERSION),
        "api": str(settings.SPECTACULAR_SETTINGS["VERSION"]),
    }


def write_ahead() -> None:
    """Render the schema in the default format before the first request."""
    _written(SchemaView.renderer_classes[0].media_type)


@lru_cache
def _written(media_type: str) -> str | bytes:
    """Return the schema in one of four formats.

    Each format is rendered once: the schema is long and does not depend on data.
    """
    renderer = next(form() for form in SchemaView.renderer_classes if form.media_type == media_type)
    text: str | bytes = renderer.render(whole_schema(), media_type, {})
    return text
