"""The demo's status board from `board.yaml`: services, source, windows, announcements."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from django.db import transaction

from apps.accounts.models import User
from apps.hosts.models import Probe, ProbeJob
from apps.statusboard.domain.maintenance.announcements import post_announcement
from apps.statusboard.domain.maintenance.windows import schedule_window
from apps.statusboard.domain.monitoring.sources import (
    add_token,
    create_source,
    rebuild_services_of,
    record_heartbeat,
)
from apps.statusboard.domain.states.services import create_service
from apps.statusboard.enums import Monitoring
from apps.statusboard.models import Announcement, DowntimeWindow, MonitoringSource, Service

SOURCE = "farm-monitoring"
_SILENCE = timedelta(minutes=15)
_DATA = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())


@transaction.atomic
def load_board(*, users: dict[str, User], token_file: Path, since: datetime, at: datetime) -> None:
    """Create missing parts of the board, monitored since `since`, and a token for the source."""
    source = _load_source(token_file, since, at)
    services = _load_services(source, since, at)
    if source.last_seen_at is None:
        # Heartbeats cover the whole history of the simulated cluster.
        silence = source.heartbeat_timeout_seconds
        source.heartbeat_timeout_seconds = int((at - since).total_seconds())
        # A single long heartbeat: one per timeout would take seconds.
        record_heartbeat(source=source, heartbeat=True, at=since)
        source.heartbeat_timeout_seconds = silence
        record_heartbeat(source=source, heartbeat=True, at=at)
        rebuild_services_of(source=source, since=since)
    _activate_probes(services)
    if not DowntimeWindow.objects.exists():
        hour = at.replace(minute=0, second=0, microsecond=0)
        for window in _DATA["windows"]:
            schedule_window(
                services=_services_of(services, window),
                title=window["title"],
                text=window["text"],
                starts_at=hour + timedelta(hours=window["starts"]),
                ends_at=hour + timedelta(hours=window["ends"]),
                by=users["shifter"],
                at=at - timedelta(hours=48),
            )
    if not Announcement.objects.exists():
        for announcement in _DATA["announcements"]:
            ends_at = None
            if "ends" in announcement:
                ends_at = at + timedelta(hours=announcement["ends"])
            post_announcement(
                title=announcement["title"],
                body=announcement["body"],
                services=_services_of(services, announcement),
                ends_at=ends_at,
                by=users["approver"],
                at=at - timedelta(hours=announcement["hours_ago"]),
            )


def _load_services(source: MonitoringSource, since: datetime, at: datetime) -> dict[str, Service]:
    """Return the services of the board by slug, creating those that are missing."""
    services = {service.slug: service for service in Service.objects.all()}
    for entry in _DATA["services"]:
        if entry["slug"] in services:
            continue
        monitoring = Monitoring(entry.get("monitoring", Monitoring.NONE))
        values = {
            "parent": services.get(entry.get("parent")),
            "monitoring": monitoring,
            "source": source if monitoring is Monitoring.FEED else None,
            "monitored_since": since,
        }
        services[entry["slug"]] = create_service(**(entry | values), by="demo", at=at)
    return services


def _activate_probes(services: dict[str, Service]) -> None:
    """Activate the shipped probes, each with its service, unless someone has chosen others."""
    if ProbeJob.objects.exists() or Probe.objects.filter(active=True).exists():
        return
    for probe in Probe.objects.filter(name__in=_DATA["probes"]):
        probe.service = services.get(_DATA["probes"][probe.name])
        probe.active = True
        probe.save(update_fields=["service", "active"])


def _services_of(services: dict[str, Service], entry: dict[str, Any]) -> list[Service]:
    return [services[slug] for slug in entry.get("services", [])]


def _load_source(token_file: Path, since: datetime, at: datetime) -> MonitoringSource:
    source = MonitoringSource.objects.filter(slug=SOURCE).first()
    if source is None:
        source, token = create_source(
            slug=SOURCE,
            name="Monitoring of the farm",
            by="demo",
            at=at,
            heartbeat_timeout_seconds=int(_SILENCE.total_seconds()),
            monitored_since=since,
        )
    elif token_file.exists():
        return source
    else:
        token = add_token(source=source, by="demo", at=at, revoke_others=True)
    token_file.parent.mkdir(parents=True, exist_ok=True)
    token_file.touch(mode=0o600)
    token_file.write_text(token)
    return source
