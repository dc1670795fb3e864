"""What to do instead of a retry while a service is down."""

from collections.abc import Mapping
from datetime import datetime

from django.utils import timezone

from apps.statusboard.domain.board.board import disruptions
from apps.statusboard.enums import State


def waits_by_service(at: datetime) -> Mapping[str, str]:
    """Return what to do about failures of each service that is down.

    The keys are slugs and names of services in lower case. One query.
    """
    waits: dict[str, str] = {}
    for trouble in disruptions(at, (State.DOWN,)):
        since = timezone.localtime(trouble.since)
        now = timezone.localtime(at)
        if since.date() == now.date():
            clock = f"{since:%H:%M}"
        else:
            clock = f"{since.day} {since:%b %H:%M}"
        step = f"wait until {trouble.service.name} is up (down since {clock})"
        waits |= dict.fromkeys((trouble.service.slug.lower(), trouble.service.name.lower()), step)
    return waits
