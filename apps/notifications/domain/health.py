"""State of the two channels, for the health page."""

from typing import Any

from django.conf import settings

from apps.notifications.enums import Channel, MessageState
from apps.notifications.models import Message


def mail_is_configured() -> bool:
    return bool(settings.EMAIL_HOST)


def channels_health() -> list[dict[str, Any]]:
    """Return for each channel how many messages wait, wait after a failure (`late`), and were refused."""
    return [_health(channel) for channel in Channel.values]


def _health(channel: str) -> dict[str, Any]:
    messages = Message.objects.filter(channel=channel)
    waiting = messages.filter(state=MessageState.WAITING)
    failed = waiting.filter(attempts__gt=0)
    return {
        "channel": channel,
        "configured": channel != Channel.MAIL or mail_is_configured(),
        "waiting": waiting.count(),
        "late": failed.count(),
        "refused": messages.filter(state=MessageState.REFUSED).count(),
        "last_error": failed.order_by("-due_at").values_list("last_error", flat=True).first() or "",
    }
