"""`Idempotency-Key`: repeating a call with its key returns the same response and changes nothing.

Follows draft-ietf-httpapi-idempotency-key-header. Key, change and response are stored in one
transaction, so a killed process leaves none of them.
"""

import hashlib
import re
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection

from apps.accounts.permissions import scope_of
from apps.api.models import KeyedCall
from apps.core.errors import DomainError, NotAllowed

#: A string as in RFC 8941, with or without quotes.
_KEY = re.compile(
    r'"(?P<quoted>[\x20\x21\x23-\x5b\x5d-\x7e]{1,255})"|(?P<bare>[\x21\x23-\x7e]{1,255})'
)


class CallInProgress(DomainError):
    """The same call is in progress with this key."""


class KeyReused(DomainError):
    """The key was used for another call."""


def earlier_call(call: KeyedCall) -> KeyedCall | None:
    """Return the earlier call with this key; None if this is the first.

    The first call locks the key until the transaction ends. Raises `CallInProgress`, `KeyReused`,
    and `NotAllowed` if the user has lost a role since: the stored response may contain what the
    user may no longer see.
    """
    digest = hashlib.sha256(f"{call.user_id} {call.route} {call.key}".encode()).digest()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_try_advisory_xact_lock(%s)", [int.from_bytes(digest[:8], signed=True)]
        )
        if not cursor.fetchone()[0]:
            raise CallInProgress(
                "The same call is in progress with this key. Try again in a moment."
            )
    calls = KeyedCall.objects.filter(user=call.user, route=call.route, key=call.key)
    calls.filter(at__lte=call.at - timedelta(hours=settings.IDEMPOTENCY_HOURS)).delete()
    earlier = calls.first()
    if earlier is not None and earlier.fingerprint != call.fingerprint:
        raise KeyReused(
            "This key was used for another call: the body differs. Use a new key for each change."
        )
    call.roles = [list(role) for role in scope_of(call.user).roles]
    if earlier is not None and not all(role in call.roles for role in earlier.roles):
        raise NotAllowed(
            "This change was made before. You have lost a role since, so its response is not "
            "repeated."
        )
    return earlier


def key_of(header: str) -> str | None:
    """Return the key in a header; None if it is malformed."""
    match = _KEY.fullmatch(header.strip())
    return (match["quoted"] or match["bare"]) if match else None


def drop_old_calls(*, at: datetime) -> int:
    """Delete calls older than IDEMPOTENCY_HOURS; return their number."""
    return KeyedCall.objects.filter(
        at__lte=at - timedelta(hours=settings.IDEMPOTENCY_HOURS)
    ).delete()[0]
