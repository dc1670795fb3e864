"""Tokens of the API, and the end of tokens and sessions."""

from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.sessions.models import Session
from django.db import transaction

from apps.accounts.enums import TokenScope
from apps.accounts.models import ApiToken, Principal, User
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields


@transaction.atomic
def create_token(
    *,
    user: User,
    name: str,
    days: int,
    by: Principal,
    at: datetime,
    scope: TokenScope = TokenScope.WRITE,
    calls_per_hour: int | None = None,
) -> str:
    """Create and return an API token, of which only a hash is stored.

    Without `calls_per_hour`, it has the portal's limit.

    Raises `InvalidFields` if the user has too many.
    """
    User.objects.select_for_update(no_key=True).get(pk=user.pk)
    limit = settings.REST_KNOX["TOKEN_LIMIT_PER_USER"]
    if ApiToken.objects.filter(user=user, expiry__gt=at).count() >= limit:
        raise InvalidFields(
            {"days": [f"You already have {limit} tokens. Revoke one you no longer use."]}
        )
    _, token = ApiToken.objects.create(
        user,
        expiry=timedelta(days=days),
        name=name,
        scope=scope,
        calls_per_hour=calls_per_hour,
    )
    publish(
        kind="token.created",
        target=user,
        by=by,
        at=at,
        data={"name": name, "scope": scope, "days": days, "calls_per_hour": calls_per_hour},
    )
    return str(token)


@transaction.atomic
def revoke_token(*, user: User, token_key: str, by: Principal, at: datetime) -> bool:
    """Revoke a token; return whether the user had it."""
    deleted, _ = ApiToken.objects.filter(user=user, token_key=token_key).delete()
    if deleted:
        publish(kind="token.revoked", target=user, by=by, at=at)
    return bool(deleted)


@transaction.atomic
def forget_expired(*, at: datetime) -> None:
    """Delete expired sessions and tokens."""
    Session.objects.filter(expire_date__lt=at).delete()
    ApiToken.objects.filter(expiry__lt=at).delete()
