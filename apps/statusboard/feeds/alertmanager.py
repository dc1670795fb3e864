"""Prometheus Alertmanager's webhook, version 4 (also version 3, and early version 4 without fingerprints).

Each alert has its own `status`; the status of the group is "firing" as long as any of its alerts is.
"""

import hashlib
import json
from datetime import UTC, datetime
from typing import Any

from apps.statusboard.feeds.base import Alert, Message, Status, UnreadablePayload

#: Name of the always-firing alert, by Prometheus convention: while it arrives, the alerting chain works.
HEARTBEAT = "Watchdog"


class Alertmanager:
    name = "alertmanager"

    def parse(self, body: bytes) -> Message:
        payload = _read(body)
        alerts, notes = [], []
        for place, entry in enumerate(payload["alerts"]):
            try:
                alerts.append(_alert(entry if isinstance(entry, dict) else {}))
            except (ValueError, OverflowError) as error:
                notes.append(f"alert {place} skipped: {error}")
        if truncated := payload.get("truncatedAlerts"):
            notes.append(f"{truncated} alerts truncated by the sender (max_alerts)")
        return Message(tuple(alert for alert in alerts if alert is not None), tuple(notes))


def _read(body: bytes) -> dict[str, Any]:
    try:
        payload = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UnreadablePayload(f"invalid JSON: {error}") from error
    if not isinstance(payload, dict) or not isinstance(payload.get("alerts"), list):
        raise UnreadablePayload("not an Alertmanager message: list “alerts” is missing")
    return payload


def _alert(entry: dict[str, Any]) -> Alert | None:
    """Parse an alert; None for a resolved heartbeat, since missing heartbeats say the same."""
    labels = _texts(entry.get("labels"))
    notes = _texts(entry.get("annotations"))
    status = {"firing": Status.OPEN, "resolved": Status.RESOLVED}.get(str(entry.get("status")))
    if status is None:
        raise ValueError(f"unknown status {str(entry.get('status'))[:40]!r}")
    if labels.get("alertname") == HEARTBEAT:
        if status is Status.RESOLVED:
            return None
        status = Status.HEARTBEAT
    started_at = _time(entry.get("startsAt"))
    if started_at is None:
        raise ValueError("startsAt is missing")
    sorted_labels = json.dumps(sorted(labels.items()))
    return Alert(
        dedup_key=(_text(entry.get("fingerprint")) or hashlib.sha256(sorted_labels.encode()).hexdigest()[:32])[:200],
        status=status,
        started_at=started_at,
        ended_at=_time(entry.get("endsAt")) if status is Status.RESOLVED else None,
        labels=labels,
        title=notes.get("title") or notes.get("summary") or labels.get("alertname", ""),
        text=notes.get("description") or notes.get("message", ""),
        url=_text(entry.get("generatorURL")),
        severity=labels.get("severity", ""),
    )


def _time(value: object) -> datetime | None:
    """Parse a time with its zone; None if missing or in year 1, Go's zero time."""
    if not isinstance(value, str) or not value or value.startswith("0001-"):
        return None
    at = datetime.fromisoformat(_microseconds(value))
    if at.tzinfo is None:
        raise ValueError(f"{value[:40]!r} has no time zone")
    return at.astimezone(UTC)


def _microseconds(value: str) -> str:
    """Truncate Go's nanoseconds to microseconds, which every Python version parses."""
    head, dot, tail = value.partition(".")
    digits = len(tail) - len(tail.lstrip("0123456789"))
    return f"{head}.{tail[:digits][:6]:0<6}{tail[digits:]}" if dot else value


def _text(value: object) -> str:
    """Return text that PostgreSQL can store."""
    return "" if value is None else str(value).replace("\0", "").encode("utf-8", "replace").decode()


def _texts(value: object) -> dict[str, str]:
    return {_text(name): _text(item) for name, item in value.items()} if isinstance(value, dict) else {}
