"""What holds for every call of the API, whichever view answers it: `Idempotency-Key`, `ETag`, `If-None-Match`."""

import hashlib
from collections.abc import Callable
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.utils import timezone
from django.utils.cache import get_conditional_response, patch_cache_control
from django.utils.http import quote_etag
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.views import APIView

from apps.accounts.models import User
from apps.api.domain import HEADER, answer_once, key_of
from apps.core.api.conditional import SAFE

_UNKNOWN = "This address knows no If-Match: nothing was changed."


class ETagMiddleware:
    """Tag what is read, say 304 for what the reader has already, and let no `If-Match` pass unheeded."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if not request.path.startswith("/api/") or request.method not in {"GET", "HEAD"}:
            return response
        if response.status_code != 200 or response.streaming:
            return response
        if not response.has_header("ETag"):
            response["ETag"] = quote_etag(hashlib.sha256(response.content).hexdigest()[:32])
        if not response.has_header("Cache-Control"):
            patch_cache_control(response, private=True, no_cache=True)
        return get_conditional_response(request, etag=response["ETag"], response=response) or response

    def process_view(
        self, request: HttpRequest, view: Callable[..., HttpResponseBase], args: Any, kwargs: Any
    ) -> HttpResponseBase | None:
        """Refuse a condition that the view would not look at."""
        cls = getattr(view, "cls", None)
        if cls is None or request.method in SAFE or "If-Match" not in request.headers:
            return None
        return None if getattr(cls, "takes_if_match", False) else JsonResponse({"detail": _UNKNOWN}, status=412)


class IdempotencyMiddleware:
    """Let a change that is sent again with its key be made once. Last in the list, as it calls the view itself."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(
        self, request: HttpRequest, view: Callable[..., HttpResponseBase], args: Any, kwargs: Any
    ) -> HttpResponseBase | None:
        """Call the view where a key came with a change by a known person; else leave all to the view."""
        header, cls = request.headers.get(HEADER), getattr(view, "cls", None)
        if header is None or request.method in SAFE or cls is None or not issubclass(cls, APIView):
            return None
        user = _who(request, cls)
        if user is None:
            return None
        key = key_of(header)
        if key is None:
            return JsonResponse({"detail": f"{HEADER}: 1 to 255 printable ASCII characters, in quotes."}, status=400)
        try:
            request.body  # noqa: B018 - what is too large, or breaks off, the view refuses as always
        except (RequestDataTooBig, OSError):
            return None
        return answer_once(
            request=request, user=user, key=key, at=timezone.now(), answer=lambda: view(request, *args, **kwargs)
        )


def _who(request: HttpRequest, cls: type[APIView]) -> User | None:
    """Return who asks, as the view will find; None for machines, strangers, and whom the view will refuse."""
    try:
        user = Request(request, authenticators=cls().get_authenticators()).user
    except APIException:
        return None
    return user if isinstance(user, User) else None
