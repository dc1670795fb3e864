"""Refuse malformed requests, find the client's address, and make hidden characters of pages visible."""

import re
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address

from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, JsonResponse

from apps.core.domain.hidden_characters import HIDDEN, mark_hidden

Answer = Callable[[HttpRequest], HttpResponse]
_FIELD_VALUES = re.compile(r'(<textarea\b[^>]*>[^<]*</textarea>|\bvalue="[^"]*")')


class CleanRequestMiddleware:
    """Refuse a NUL in a URL or cookie, which PostgreSQL cannot store, and credentials that are not ASCII."""

    def __init__(self, get_response: Answer) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if "\0" in request.path or "%00" in request.META.get("QUERY_STRING", ""):
            return _refuse(request, "The address holds a NUL character.")
        if any("\0" in value for value in request.COOKIES.values()):
            return _refuse(request, "A cookie holds a NUL character.")
        credentials = request.META.get("HTTP_AUTHORIZATION", "")
        if not credentials.isascii() or "\0" in credentials:
            return _refuse(request, "The Authorization header is not ASCII.")
        return self.get_response(request)


def _refuse(request: HttpRequest, why: str) -> HttpResponse:
    if request.path.startswith("/api/"):
        return JsonResponse({"detail": why}, status=400)
    return HttpResponseBadRequest(f"{why}\n", content_type="text/plain")


class TrustedProxyMiddleware:
    """Take the sender's address from the proxy in front: the last of `X-Forwarded-For`, which it has added itself.

    Only with TRUST_PROXY: whoever reaches the portal past the proxy could claim any address.
    """

    def __init__(self, get_response: Answer) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        address = request.META.get("HTTP_X_FORWARDED_FOR", "").rpartition(",")[2].strip()
        with suppress(ValueError):
            request.META["REMOTE_ADDR"] = str(ip_address(address))
        return self.get_response(request)


class HiddenCharactersMiddleware:
    """Show control, direction and invisible characters of every page by their code points: `⟨U+202E⟩`.

    Names, titles, log lines and alerts come from jobs and strangers. Templates mark them with the filter `visible`;
    this covers what a template leaves out. Form values stay as they are, so that saving a form changes nothing.
    """

    def __init__(self, get_response: Answer) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if not response.streaming and response.headers.get("Content-Type", "").startswith("text/html"):
            page = response.content.decode(response.charset)
            if HIDDEN.search(page):
                parts = _FIELD_VALUES.split(page)
                parts[::2] = map(mark_hidden, parts[::2])
                response.content = "".join(parts).encode(response.charset)
        return response
