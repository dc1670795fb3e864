"""`Idempotency-Key`: a call that is sent again with its key is answered as before, and changes nothing a second time.

As draft-ietf-httpapi-idempotency-key-header has it. Key, change and answer are one transaction: whoever is killed on
the way has changed nothing and kept nothing.
"""

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection

from apps.accounts.models import User
from apps.api.models import KeyedCall
from apps.core.errors import DomainError

#: A string as RFC 8941 writes it, or the same without quotes.
_KEY = re.compile(r'"(?P<quoted>[\x20\x21\x23-\x5b\x5d-\x7e]{1,255})"|(?P<bare>[\x21\x23-\x7e]{1,255})')


class CallInProgress(DomainError):
    """The same call, with this key, is being made at this moment."""


class KeyReused(DomainError):
    """The key was used for another call."""


def key_of(header: str) -> str | None:
    """Return the key that a header holds; None where it is none."""
    found = _KEY.fullmatch(header.strip())
    return (found["quoted"] or found["bare"]) if found else None


def call_before(*, user: User, route: str, key: str, fingerprint: str, at: datetime) -> KeyedCall | None:
    """Return the call that was made with this key; None for the first, which has the key until the transaction ends.

    `route` is method and path, `fingerprint` a digest of all else that makes one call differ from another. Raises
    `CallInProgress` and `KeyReused`.
    """
    if not _alone(f"{user.pk} {route} {key}"):
        raise CallInProgress("The same call, with this key, is being made just now. Ask again in a moment.")
    calls = KeyedCall.objects.filter(user=user, route=route, key=key)
    calls.filter(at__lte=at - _kept_for()).delete()
    before = calls.first()
    if before is not None and before.fingerprint != fingerprint:
        raise KeyReused("This key was used for another call: the body differs. Take a new key for each change.")
    return before


def keep_call(
    *,
    user: User,
    route: str,
    key: str,
    fingerprint: str,
    at: datetime,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
) -> KeyedCall:
    """Keep a call and its answer, in the transaction that changed something."""
    return KeyedCall.objects.create(
        user=user,
        route=route,
        key=key,
        fingerprint=fingerprint,
        at=at,
        status=status,
        headers=dict(headers),
        body=body,
    )


def drop_old_calls(*, at: datetime) -> int:
    """Forget calls that are older than IDEMPOTENCY_HOURS; return how many."""
    return KeyedCall.objects.filter(at__lte=at - _kept_for()).delete()[0]


def _kept_for() -> timedelta:
    return timedelta(hours=settings.IDEMPOTENCY_HOURS)


def _alone(name: str) -> bool:
    """Take the lock of this call until the transaction ends, however it does, or tell that another has it."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [number])
        return bool(cursor.fetchone()[0])
