"""State of the two channels, for the health page."""

from dataclasses import dataclass
from datetime import datetime

from django.conf import settings

from apps.notifications.enums import Channel, MessageState
from apps.notifications.models import Message


def mail_is_configured() -> bool:
    return bool(settings.EMAIL_HOST)


@dataclass(frozen=True)
class Health:
    """State of one channel: how many messages wait, wait after a failure, and were refused."""

    channel: str
    configured: bool
    waiting: int
    late: int
    refused: int
    last_error: str


def channels_health(at: datetime) -> list[Health]:
    """Return the state of each channel."""
    found = []
    for channel in Channel.values:
        messages = Message.objects.filter(channel=channel)
        waiting = messages.filter(state=MessageState.WAITING)
        failed = waiting.filter(attempts__gt=0)
        found.append(
            Health(
                channel=channel,
                configured=channel != Channel.MAIL or mail_is_configured(),
                waiting=waiting.count(),
                late=failed.count(),
                refused=messages.filter(state=MessageState.REFUSED).count(),
                last_error=failed.order_by("-due_at").values_list("last_error", flat=True).first() or "",
            )
        )
    return found
