"""Secrets of webhooks and addresses of feeds: made of SECRET_KEY and a stored part, so that the database alone
reveals none."""

from typing import TYPE_CHECKING

from django.utils.crypto import constant_time_compare, salted_hmac

if TYPE_CHECKING:
    from apps.notifications.models import Webhook

_NAME_LENGTH = 16


def secret_of(webhook: "Webhook") -> str:
    """Return the secret that signs what this webhook is told."""
    return salted_hmac("opsportal.webhook", webhook.nonce, algorithm="sha256").hexdigest()


def feed_token(name: str) -> str:
    """Return the token that stands in the addresses of the feeds with this name."""
    return name + salted_hmac("opsportal.feed", name, algorithm="sha256").hexdigest()[:40]


def feed_name(token: str) -> str:
    """Return the name that a token holds, or an empty text where it is no token of ours."""
    name = token[:_NAME_LENGTH]
    return name if constant_time_compare(feed_token(name), token) else ""
