"""Middleware for all API calls: `Idempotency-Key`, `ETag` and `If-None-Match`."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.utils import timezone
from django.utils.cache import get_conditional_response, patch_cache_control
from django.utils.deprecation import MiddlewareMixin
from django.utils.http import quote_etag
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.views import APIView

from apps.accounts.models import User
from apps.api.domain import CallInProgress, KeyReused, earlier_call, key_of
from apps.api.models import KeyedCall
from apps.core.api.conditional import SAFE
from apps.core.errors import NotAllowed

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
#: Headers that distinguish calls.
_OF_THE_CALL = ("Content-Type", "If-Match", "If-None-Match", "Accept")
_KEPT_HEADERS = ("Content-Type", "ETag", "Location")
_NOT_KEPT = "This change was made before. Its response contained a secret and is not repeated."
_NO_CONDITION = "This resource does not support If-Match. Nothing was changed."


class ETagMiddleware(MiddlewareMixin):
    """Add ETags to reads, and return 304 for a matching `If-None-Match`.

    Rejects an `If-Match` that the view does not support.
    """

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponseBase:
        if not request.path.startswith("/api/") or request.method not in {"GET", "HEAD"}:
            return response
        if response.status_code != 200 or response.streaming:
            return response
        if not response.has_header("ETag"):
            response["ETag"] = quote_etag(hashlib.sha256(response.content).hexdigest()[:32])
        if not response.has_header("Cache-Control"):
            patch_cache_control(response, private=True, no_cache=True)
        return (
            get_conditional_response(request, etag=response["ETag"], response=response) or response
        )

    def process_view(
        self, request: HttpRequest, view: Callable[..., HttpResponseBase], args: Any, kwargs: Any
    ) -> HttpResponseBase | None:
        """Reject a condition that the view would ignore."""
        cls = getattr(view, "cls", None)
        if cls is None or request.method in SAFE or "If-Match" not in request.headers:
            return None
        if getattr(cls, "takes_if_match", False):
            return None
        return JsonResponse({"detail": _NO_CONDITION}, status=412)


class IdempotencyMiddleware(MiddlewareMixin):
    """Applies a change once, however often it is sent with its key.

    Must be last in the list, because it calls the view.
    """

    def process_view(
        self, request: HttpRequest, view: Callable[..., HttpResponseBase], args: Any, kwargs: Any
    ) -> HttpResponseBase | None:
        """Call the view if an authenticated user sent a change with a key; else do nothing."""
        header = request.headers.get(HEADER)
        cls = getattr(view, "cls", None)
        if header is None or request.method in SAFE or cls is None or not issubclass(cls, APIView):
            return None
        user = _authenticated_user(request, cls)
        if user is None:
            return None
        key = key_of(header)
        if key is None:
            return _refuse(400, f"{HEADER}: 1 to 255 printable ASCII characters, in quotes.")
        try:
            request.body  # noqa: B018 - the view refuses a body that is too large or cut off
        except (RequestDataTooBig, OSError):
            return None
        headers = [request.headers.get(name, "") for name in _OF_THE_CALL]
        described = json.dumps([request.META.get("QUERY_STRING", ""), *headers]).encode()
        fingerprint = hashlib.sha256(described + b"\0" + request.body).hexdigest()
        route = f"{request.method} {request.path}"[:300]
        call = KeyedCall(
            user=user, route=route, key=key, fingerprint=fingerprint, at=timezone.now()
        )
        return _answer_once(call, lambda: view(request, *args, **kwargs))


def _answer_once(call: KeyedCall, answer: Callable[[], HttpResponseBase]) -> HttpResponseBase:
    """Repeat the response of an earlier call with this key, or make the call.

    Returns 409 while the same call is in progress, and 422 if the key was used for another call.
    Only successful responses are stored, so a rejected call can be retried with its key.
    """
    with transaction.atomic():
        try:
            earlier = earlier_call(call)
        except (CallInProgress, KeyReused, NotAllowed) as error:
            return _refuse({CallInProgress: 409, KeyReused: 422}.get(type(error), 403), str(error))
        if earlier is not None:
            repeated = HttpResponse(bytes(earlier.body), status=earlier.status)
            del repeated["Content-Type"]
            for name, value in (earlier.headers | {REPLAYED: "true"}).items():
                repeated[name] = value
            return repeated
        response = answer()
        if not isinstance(response, HttpResponse) or not 200 <= response.status_code < 300:
            transaction.set_rollback(True)
            return response
        if hasattr(response, "render"):
            response.render()
        if "no-store" in response.get("Cache-Control", ""):
            kept = _refuse(409, _NOT_KEPT)
        else:
            kept = response
        call.status = kept.status_code
        call.body = kept.content
        call.headers = {}
        for name in _KEPT_HEADERS:
            if name in kept:
                call.headers[name] = kept[name]
        call.save()
        return response


def _refuse(status: int, detail: str) -> HttpResponse:
    return JsonResponse({"detail": detail}, status=status)


def _authenticated_user(request: HttpRequest, cls: type[APIView]) -> User | None:
    """Return the user as the view will see it; None for machines and unauthenticated calls."""
    try:
        user = Request(request, authenticators=cls().get_authenticators()).user
    except APIException:
        return None
    return user if isinstance(user, User) else None
