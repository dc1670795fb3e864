"""Create services."""

from datetime import datetime

from django.db import transaction

from apps.accounts.models import Principal
from apps.core.domain.events import publish
from apps.statusboard.domain.states.history import rebuild
from apps.statusboard.enums import Monitoring
from apps.statusboard.models import MonitoringSource, Service


@transaction.atomic
def create_service(
    *,
    slug: str,
    name: str,
    by: Principal,
    at: datetime,
    kind: str = "",
    parent: Service | None = None,
    monitoring: Monitoring = Monitoring.NONE,
    source: MonitoringSource | None = None,
    monitored_since: datetime | None = None,
    advice: str = "",
) -> Service:
    """Create a service, which is monitored since `monitored_since` or now."""
    if source is not None:
        monitoring = Monitoring.FEED
    since = None
    if monitoring != Monitoring.NONE:
        since = monitored_since or at

    service = Service.objects.create(
        slug=slug,
        name=name,
        kind=kind,
        parent=parent,
        monitoring=monitoring,
        source=source,
        monitored_since=since,
        advice=advice,
    )
    publish(kind="service.created", target=service, by=by, at=at, new=monitoring)
    rebuild(service_ids=[service.pk])
    return service
