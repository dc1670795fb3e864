"""What to do instead of a retry while a service is down."""

from collections.abc import Mapping
from datetime import datetime

from django.db.models import Q
from django.utils import timezone

from apps.statusboard.domain.board.board import disruptions
from apps.statusboard.enums import State
from apps.statusboard.models import Service


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


def name_of_service(text: str) -> str:
    """Return how the status board names a service that a known error names, or that text itself."""
    if not text:
        return ""
    named = Service.objects.filter(Q(slug__iexact=text) | Q(name__iexact=text))
    return named.values_list("name", flat=True).first() or text
