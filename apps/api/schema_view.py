"""Where the OpenAPI schema is read."""

from typing import Any, ClassVar

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework.permissions import AllowAny
from rest_framework.request import Request


class SchemaView(SpectacularAPIView):
    """The schema, which each process writes once in each format: it is long, and nothing in it depends on data.

    It tells nothing of anybody, and tools fetch it before they have a token.
    """

    permission_classes = [AllowAny]
    #: By media type, of which there are four.
    written: ClassVar[dict[str, str | bytes]] = {}

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        renderer = request.accepted_renderer
        if renderer.media_type not in self.written:
            data = super().get(request, *args, **kwargs).data  # type: ignore[no-untyped-call]
            text = renderer.render(data, renderer.media_type, self.get_renderer_context())
            self.written[renderer.media_type] = text
        disposition = f'inline; filename="opsportal.{renderer.format}"'
        headers = {"Content-Disposition": disposition, "Vary": "Accept"}
        return HttpResponse(self.written[renderer.media_type], content_type=renderer.media_type, headers=headers)
