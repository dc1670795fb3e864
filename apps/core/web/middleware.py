"""Middleware: reject malformed and large requests, set the client's address, forbid caching.

It also redirects GET requests for the URL of a form, and marks hidden characters.
"""

import logging
import re
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.urls import Resolver404, resolve
from django.utils.cache import patch_cache_control
from django.utils.deprecation import MiddlewareMixin

from apps.core.counters import count_response
from apps.core.domain.hidden_characters import HIDDEN, mark_hidden

log = logging.getLogger(__name__)
_FIELD_VALUES = re.compile(r'(<textarea\b[^>]*>[^<]*</textarea>|\bvalue="[^"]*")')


class CountErrorsMiddleware(MiddlewareMixin):
    """Count failed responses for `/metrics`, except responses of `/readyz`."""

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        if response.status_code >= 500 and request.path != "/readyz":
            count_response(response.status_code)
        return response


class CleanRequestMiddleware(MiddlewareMixin):
    """Reject a NUL in a URL or cookie, which PostgreSQL cannot store, and non-ASCII credentials."""

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        if "\0" in request.path or "%00" in request.META.get("QUERY_STRING", ""):
            return _refuse(request, "The address holds a NUL character.")
        if any("\0" in value for value in request.COOKIES.values()):
            return _refuse(request, "A cookie holds a NUL character.")
        credentials = request.META.get("HTTP_AUTHORIZATION", "")
        if not credentials.isascii() or "\0" in credentials:
            return _refuse(request, "The Authorization header is not ASCII.")
        return None


class BodyLimitMiddleware(MiddlewareMixin):
    """Reject a large body before anything parses it.

    The limit is `max_body_bytes` of the view, or DATA_UPLOAD_MAX_MEMORY_SIZE. Django reads no more
    than Content-Length, so an accepted body is no longer than that. A chunked body has no length,
    and Django would take it for an empty one; a buffering proxy adds the length.
    """

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: Any, kwargs: Any
    ) -> HttpResponse | None:
        limit = getattr(
            getattr(view, "cls", view), "max_body_bytes", settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        )
        return refusal_of_body(request, limit)


def refusal_of_body(request: HttpRequest, limit: int) -> HttpResponse | None:
    """Return the response to a body that is too long or of unknown length, else None."""
    length = request.META.get("CONTENT_LENGTH") or "0"
    if "HTTP_TRANSFER_ENCODING" in request.META:
        return _refuse(request, "The request has no Content-Length.", 411)
    if not (length.isascii() and length.isdigit()):
        return _refuse(request, "The Content-Length is not a number.")
    if len(length) > 18 or int(length) > limit:
        return _refuse(request, f"The body is too large: at most {limit:,} bytes.", 413)
    return None


def _refuse(request: HttpRequest, why: str, status: int = 400) -> HttpResponse:
    if request.path.startswith("/api/"):
        return JsonResponse({"detail": why}, status=status)
    return HttpResponse(f"{why}\n", content_type="text/plain", status=status)


class NoStoreMiddleware(MiddlewareMixin):
    """Keep pages out of all caches: they show what the user may see now.

    Responses of the API have their own rules.
    """

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        if not response.has_header("Cache-Control") and not request.path.startswith("/api/"):
            patch_cache_control(response, private=True, no_store=True)
        return response


class TrustedProxyMiddleware(MiddlewareMixin):
    """Set the client's address to the last one in `X-Forwarded-For`, which the proxy has added.

    Only with TRUST_PROXY: a client that bypasses the proxy could claim any address.
    """

    def process_request(self, request: HttpRequest) -> None:
        address = request.META.get("HTTP_X_FORWARDED_FOR", "").rpartition(",")[2].strip()
        with suppress(ValueError):
            request.META["REMOTE_ADDR"] = str(ip_address(address))


class FormAddressMiddleware(MiddlewareMixin):
    """Redirect GET requests for a URL that only accepts a form to the page above it.

    After a form error, or a login in between, the browser is at such a URL and a reload requests
    it.
    """

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        is_page = request.method in ("GET", "HEAD") and not request.path.startswith("/api/")
        if response.status_code != HTTPStatus.METHOD_NOT_ALLOWED or not is_page:
            return response
        return HttpResponseRedirect(_page_above(request.path_info), status=HTTPStatus.SEE_OTHER)


def _page_above(path: str) -> str:
    """Return the URL of the nearest page whose route is a prefix of the route of this path."""
    parts = path.strip("/").split("/")
    route = resolve(path).route.split("/")
    for length in range(len(parts) - 1, 0, -1):
        above = f"/{'/'.join(parts[:length])}/"
        with suppress(Resolver404):
            if resolve(above).route.rstrip("/").split("/") == route[:length]:
                return above
    return "/"


class HiddenCharactersMiddleware(MiddlewareMixin):
    """Show hidden characters of every page by their code points: `⟨U+202E⟩`.

    These are control, direction and invisible characters. Names, titles, log lines and alerts come
    from jobs and strangers. Templates mark them with the filter `visible`; this covers what a
    template misses. Form values stay unchanged, so that saving a form changes nothing.
    """

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        if not response.streaming and response.headers.get("Content-Type", "").startswith(
            "text/html"
        ):
            page = response.content.decode(response.charset)
            if HIDDEN.search(page):
                parts = _FIELD_VALUES.split(page)
                parts[::2] = map(mark_hidden, parts[::2])
                response.content = "".join(parts).encode(response.charset)
        return response


class UntrustedProxyMiddleware(MiddlewareMixin):
    """Warn once if there seems to be a proxy although TRUST_PROXY is not set.

    All users then share the proxy's address, so failed logins of one user lock out others, and
    HTTPS is not detected.
    """

    warned = False

    def process_request(self, request: HttpRequest) -> None:
        if (
            not self.warned
            and {"HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_PROTO"} & request.META.keys()
        ):
            self.warned = True
            log.warning(
                "A request has X-Forwarded-For or X-Forwarded-Proto, but TRUST_PROXY is not set."
                " If a proxy is in front of the portal, set TRUST_PROXY=true: see "
                "docs/production.md."
            )
