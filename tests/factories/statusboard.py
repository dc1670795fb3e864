"""Rows for the tests of the status board, made by the services that make real ones."""

import json
from datetime import datetime, timedelta

from apps.statusboard.domain.monitoring.payloads import parse_payload, receive_payload
from apps.statusboard.domain.monitoring.sources import create_source
from apps.statusboard.domain.states.services import create_service
from apps.statusboard.enums import Monitoring
from apps.statusboard.models import MonitoringSource, Service, StateInterval


def service(slug: str, at: datetime, monitoring: Monitoring = Monitoring.MANUAL, **more) -> Service:
    return create_service(slug=slug, name=slug, by="test", at=at, monitoring=monitoring, **more)


def source(at: datetime, slug: str = "prometheus", **more) -> MonitoringSource:
    made, _ = create_source(slug=slug, by="test", at=at, **more)
    return made


def alert(
    start: datetime,
    end: datetime | None = None,
    key: str = "f404",
    severity: str = "critical",
    **labels: str,
) -> dict:
    """One alert as Alertmanager posts it: resolved if it has an end."""
    return {
        "status": "resolved" if end else "firing",
        "labels": {"alertname": "Outage", "severity": severity, **labels},
        "annotations": {"summary": "It does not answer"},
        "startsAt": start.isoformat(),
        "endsAt": end.isoformat() if end else "0001-01-01T00:00:00Z",
        "generatorURL": "https://prometheus.example/graph",
        "fingerprint": key,
    }


def watchdog(start: datetime) -> dict:
    return alert(start, key="watchdog", severity="none") | {"labels": {"alertname": "Watchdog"}}


def message(*alerts: dict) -> bytes:
    return json.dumps({"version": "4", "status": "firing", "alerts": list(alerts)}).encode()


def post(to: MonitoringSource, at: datetime, *alerts: dict):
    """Bring one message through the door and the parser."""
    payload = receive_payload(source=to, body=message(*alerts), at=at)
    return parse_payload(payload_id=payload.pk)


def states(of: Service, since: datetime) -> list[tuple[str, float | None]]:
    """The states from `since` on: what, and for how many minutes after `since` it begins (None:
    long before).
    """
    rows = StateInterval.objects.filter(service=of).overlapping(since, None).order_by("started_at")
    return [
        (row.state, minutes(row.started_at - since) if row.started_at >= since else None)
        for row in rows
    ]


def minutes(length: timedelta) -> float:
    return length.total_seconds() / 60
