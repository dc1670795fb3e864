"""What holds for every call of the API, whichever view answers it: `Idempotency-Key`, `ETag`, `If-None-Match`."""

import hashlib
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.utils import timezone
from django.utils.cache import get_conditional_response, patch_cache_control
from django.utils.http import quote_etag
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.views import APIView

from apps.accounts.models import User
from apps.api.domain import CallInProgress, KeyReused, call_before, keep_call, key_of
from apps.api.models import KeyedCall
from apps.core.api.conditional import SAFE

HEADER, REPLAYED = "Idempotency-Key", "Idempotency-Replayed"
#: What else of the sender makes one call differ from another.
_OF_THE_CALL = ("Content-Type", "If-Match", "If-None-Match", "Accept")
_KEPT_HEADERS = ("Content-Type", "ETag", "Location")
_NOT_KEPT = "This was done before. Its answer held a secret, which is told once and not kept."
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
        return _answer_once(request, user, key, timezone.now(), lambda: view(request, *args, **kwargs))


def _answer_once(
    request: HttpRequest, user: User, key: str, at: datetime, answer: Callable[[], HttpResponseBase]
) -> HttpResponseBase:
    """Answer as before if this call was made before with this key; else make it, and keep its answer if it succeeds.

    409 while the same call is made elsewhere, 422 where the key was used for another. What is refused is not kept, so
    it can be tried again with its key. Whatever `answer` raises, nothing is changed.
    """
    route, fingerprint = f"{request.method} {request.path}"[:300], _fingerprint(request)
    with transaction.atomic():
        try:
            before = call_before(user=user, route=route, key=key, fingerprint=fingerprint, at=at)
        except CallInProgress as error:
            return _refuse(409, str(error))
        except KeyReused as error:
            return _refuse(422, str(error))
        if before is not None:
            return _again(before)
        response = answer()
        if not isinstance(response, HttpResponse) or not 200 <= response.status_code < 300:
            transaction.set_rollback(True)
            return response
        keep_call(user=user, route=route, key=key, fingerprint=fingerprint, at=at, **_kept(response))
        return response


def _fingerprint(request: HttpRequest) -> str:
    headers = [request.headers.get(name, "") for name in _OF_THE_CALL]
    told = json.dumps([request.META.get("QUERY_STRING", ""), *headers]).encode()
    return hashlib.sha256(told + b"\0" + request.body).hexdigest()


def _again(before: KeyedCall) -> HttpResponse:
    response = HttpResponse(bytes(before.body), status=before.status)
    del response["Content-Type"]
    for name, value in before.headers.items():
        response[name] = value
    response[REPLAYED] = "true"
    return response


def _kept(response: HttpResponse) -> dict[str, Any]:
    """Return what is kept of an answer: all, unless it forbids to store it."""
    if "no-store" in response.get("Cache-Control", ""):
        refusal = _refuse(409, _NOT_KEPT)
        return {"status": 409, "headers": {"Content-Type": refusal["Content-Type"]}, "body": refusal.content}
    if hasattr(response, "render"):
        response.render()
    headers = {name: response[name] for name in _KEPT_HEADERS if name in response}
    return {"status": response.status_code, "headers": headers, "body": response.content}


def _refuse(status: int, detail: str) -> HttpResponse:
    return JsonResponse({"detail": detail}, status=status)


def _who(request: HttpRequest, cls: type[APIView]) -> User | None:
    """Return who asks, as the view will find; None for machines, strangers, and whom the view will refuse."""
    try:
        user = Request(request, authenticators=cls().get_authenticators()).user
    except APIException:
        return None
    return user if isinstance(user, User) else None
