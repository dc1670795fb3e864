"""Prometheus Alertmanager's webhook, versions 3 and 4, with or without fingerprints.

Each alert has its own `status`; the status of the group is "firing" while any of its alerts is. The
API returns the firing alerts as a list, including silenced and inhibited ones. These count too: a
silence stops notifications, but the problem remains.
"""

import hashlib
import json
from dataclasses import replace
from typing import Any

from apps.statusboard.feeds.base import Alert, Feed, Message, Status, UnreadablePayload
from apps.statusboard.feeds.values import json_of, text_of, texts, time_of

#: Name of the always-firing alert, by Prometheus convention. While it arrives, the alerting chain
#: works.
HEARTBEAT = "Watchdog"


class Alertmanager(Feed):
    name = "alertmanager"
    pulls = ("api/v2/alerts",)

    def parse(self, body: bytes) -> Message:
        if body.lstrip().startswith(b"["):
            return self._parse_list(body)
        payload = json_of(body, "an Alertmanager message")
        if not isinstance(payload.get("alerts"), list):
            raise UnreadablePayload("not an Alertmanager message: list “alerts” is missing")
        alerts = []
        notes = []
        for place, entry in enumerate(payload["alerts"]):
            try:
                alerts.append(_alert(entry if isinstance(entry, dict) else {}))
            except (ValueError, OverflowError) as error:
                notes.append(f"alert {place} skipped: {error}")
        if truncated := payload.get("truncatedAlerts"):
            notes.append(f"{truncated} alerts truncated by the sender (max_alerts)")
        return Message(tuple(alert for alert in alerts if alert is not None), tuple(notes))

    def _parse_list(self, body: bytes) -> Message:
        """Parse the response of the API.

        If an alert cannot be parsed, the list does not count as complete and closes no incidents.
        """
        entries = json_of(b'{"alerts": %b}' % body, "a list of alerts")["alerts"]
        if not all(isinstance(entry, dict) for entry in entries):
            raise UnreadablePayload("not a list of alerts: JSON objects are expected")
        message = self.parse(
            json.dumps({"alerts": [{**entry, "status": "firing"} for entry in entries]}).encode()
        )
        return replace(message, is_complete=not message.notes)


def _alert(entry: dict[str, Any]) -> Alert | None:
    """Parse an alert; None for a resolved heartbeat, which a missing heartbeat already shows."""
    labels = texts(entry.get("labels"))
    notes = texts(entry.get("annotations"))
    status = {"firing": Status.OPEN, "resolved": Status.RESOLVED}.get(str(entry.get("status")))
    if status is None:
        raise ValueError(f"unknown status {str(entry.get('status'))[:40]!r}")
    if labels.get("alertname") == HEARTBEAT:
        if status is Status.RESOLVED:
            return None
        status = Status.HEARTBEAT
    started_at = time_of(entry.get("startsAt"))
    if started_at is None:
        raise ValueError("startsAt is missing")
    # The API returns milliseconds, webhooks nanoseconds; both must give the same episode.
    started_at = started_at.replace(microsecond=started_at.microsecond // 1000 * 1000)
    sorted_labels = json.dumps(sorted(labels.items()))
    return Alert(
        dedup_key=(
            text_of(entry.get("fingerprint"))
            or hashlib.sha256(sorted_labels.encode()).hexdigest()[:32]
        )[:200],
        status=status,
        started_at=started_at,
        ended_at=time_of(entry.get("endsAt")) if status is Status.RESOLVED else None,
        labels=labels,
        title=notes.get("title") or notes.get("summary") or labels.get("alertname", ""),
        text=notes.get("description") or notes.get("message", ""),
        url=text_of(entry.get("generatorURL")),
        severity=labels.get("severity", ""),
    )
