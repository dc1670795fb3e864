"""What to do instead of a retry while a service is down."""

from collections.abc import Mapping
from datetime import datetime

from django.db.models import Q
from django.utils import timezone

from apps.statusboard.domain.board.board import Disruption, list_disruptions
from apps.statusboard.enums import State
from apps.statusboard.models import Service


def waits_by_service(at: datetime) -> Mapping[str, str]:
    """Return what to do about failures of each service that is down, as `down_services` names it.

    One query.
    """
    return {name: wait_for(trouble, at) for name, trouble in down_services(at).items()}


def down_services(at: datetime) -> Mapping[str, Disruption]:
    """Return the services that are down, by their slugs and names in lower case. One query."""
    troubles: dict[str, Disruption] = {}
    for trouble in list_disruptions(at, (State.DOWN,)):
        for name in (trouble.service.slug, trouble.service.name):
            troubles[name.lower()] = trouble
    return troubles


def wait_for(trouble: Disruption, at: datetime) -> str:
    """Return what to do about failures of a service that is down."""
    since = timezone.localtime(trouble.since)
    now = timezone.localtime(at)
    if since.date() == now.date():
        clock = f"{since:%H:%M}"
    else:
        clock = f"{since.day} {since:%b %H:%M}"
    return f"wait until {trouble.service.name} is up (down since {clock})"


def name_of_service(text: str) -> str:
    """Return how the status board names a service that a known error names, or that text itself."""
    if not text:
        return ""
    named = Service.objects.filter(Q(slug__iexact=text) | Q(name__iexact=text))
    return named.values_list("name", flat=True).first() or text
