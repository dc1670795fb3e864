"""`Idempotency-Key`: a call that is sent again with its key is answered as before, and changes nothing a second time.

As draft-ietf-httpapi-idempotency-key-header has it. Key, change and answer are one transaction: whoever is killed on
the way has changed nothing and kept nothing.
"""

import hashlib
import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse

from apps.accounts.models import User
from apps.api.models import KeyedCall

HEADER, REPLAYED = "Idempotency-Key", "Idempotency-Replayed"
#: A string as RFC 8941 writes it, or the same without quotes.
_KEY = re.compile(r'"(?P<quoted>[\x20\x21\x23-\x5b\x5d-\x7e]{1,255})"|(?P<bare>[\x21\x23-\x7e]{1,255})')
#: What else of the sender makes one call differ from another.
_OF_THE_CALL = ("Content-Type", "If-Match", "If-None-Match", "Accept")
_KEPT_HEADERS = ("Content-Type", "ETag", "Location")
_NOT_KEPT = "This was done before. Its answer held a secret, which is told once and not kept."


def key_of(header: str) -> str | None:
    """Return the key that a header holds; None where it is none."""
    found = _KEY.fullmatch(header.strip())
    return (found["quoted"] or found["bare"]) if found else None


def answer_once(
    *, request: HttpRequest, user: User, key: str, at: datetime, answer: Callable[[], HttpResponseBase]
) -> HttpResponseBase:
    """Answer as before if this call was made before with this key; else make it, and keep its answer if it succeeds.

    409 while the same call is made elsewhere, 422 where the key was used for another. What is refused is not kept, so
    it can be tried again with its key. Whatever `answer` raises, nothing is changed.
    """
    route = f"{request.method} {request.path}"[:300]
    fingerprint = _fingerprint(request)
    with transaction.atomic():
        if not _alone(f"{user.pk} {route} {key}"):
            return _refuse(409, "The same call, with this key, is being made just now. Ask again in a moment.")
        calls = KeyedCall.objects.filter(user=user, route=route, key=key)
        calls.filter(at__lte=at - _kept_for()).delete()
        if (before := calls.first()) is not None:
            return _again(before, fingerprint)
        response = answer()
        if not isinstance(response, HttpResponse) or not 200 <= response.status_code < 300:
            transaction.set_rollback(True)
            return response
        KeyedCall.objects.create(user=user, route=route, key=key, fingerprint=fingerprint, at=at, **_kept(response))
        return response


def drop_old_calls(*, at: datetime) -> int:
    """Forget calls that are older than IDEMPOTENCY_HOURS; return how many."""
    return KeyedCall.objects.filter(at__lte=at - _kept_for()).delete()[0]


def _kept_for() -> timedelta:
    return timedelta(hours=settings.IDEMPOTENCY_HOURS)


def _fingerprint(request: HttpRequest) -> str:
    headers = [request.headers.get(name, "") for name in _OF_THE_CALL]
    told = json.dumps([request.META.get("QUERY_STRING", ""), *headers]).encode()
    return hashlib.sha256(told + b"\0" + request.body).hexdigest()


def _alone(name: str) -> bool:
    """Take the lock of this call until the transaction ends, however it does, or tell that another has it."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [number])
        return bool(cursor.fetchone()[0])


def _again(before: KeyedCall, fingerprint: str) -> HttpResponse:
    if before.fingerprint != fingerprint:
        return _refuse(422, "This key was used for another call: the body differs. Take a new key for each change.")
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
