"""What no address may hold."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest


class NoNulMiddleware:
    """Refuse an address with a NUL character: PostgreSQL has no such text, so nothing can be found by it."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if "\0" in request.path or "%00" in request.META.get("QUERY_STRING", ""):
            return HttpResponseBadRequest("The address holds a NUL character.\n", content_type="text/plain")
        return self.get_response(request)
