"""Reading notifications: what a person may see, who is concerned by an event, what waits to be sent."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db.models import QuerySet

from apps.notifications.enums import Channel, MessageState
from apps.notifications.models import Message


def mail_is_configured() -> bool:
    return bool(settings.EMAIL_HOST)


@dataclass(frozen=True)
class Health:
    """How one channel does, for the health page."""

    channel: str
    configured: bool
    waiting: int
    late: int
    refused: int
    last_error: str


def channels_health(at: datetime) -> list[Health]:
    """Tell of each channel how many messages wait, how many of them were tried in vain, and the last error."""
    rows: Mapping[str, QuerySet[Message]] = {each: Message.objects.filter(channel=each) for each in Channel.values}
    found = []
    for channel, messages in rows.items():
        waiting = messages.filter(state=MessageState.WAITING)
        failed = waiting.filter(attempts__gt=0)
        last = failed.order_by("-due_at").values_list("last_error", flat=True).first()
        found.append(
            Health(
                channel=channel,
                configured=channel != Channel.MAIL or mail_is_configured(),
                waiting=waiting.count(),
                late=failed.count(),
                refused=messages.filter(state=MessageState.REFUSED).count(),
                last_error=last or "",
            )
        )
    return found
