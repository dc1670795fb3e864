"""Secrets of webhooks and feeds, derived from SECRET_KEY and a stored part: the database alone reveals none."""

from typing import TYPE_CHECKING

from django.utils.crypto import constant_time_compare, salted_hmac

if TYPE_CHECKING:
    from apps.notifications.models import Webhook

_NAME_LENGTH = 16


def secret_of(webhook: "Webhook") -> str:
    """Return the secret that signs the calls of this webhook."""
    return salted_hmac("opsportal.webhook", webhook.nonce, algorithm="sha256").hexdigest()


def feed_token(name: str) -> str:
    """Return the token in the URLs of the feeds with this name."""
    return name + salted_hmac("opsportal.feed", name, algorithm="sha256").hexdigest()[:40]


def feed_name(token: str) -> str:
    """Return the name in a token, or "" if the token is not valid."""
    name = token[:_NAME_LENGTH]
    return name if constant_time_compare(feed_token(name), token) else ""
