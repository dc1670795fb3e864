"""Report planted outages to the portal as Alertmanager does.

Version 4 payloads are sent in order and retried until they are accepted.
"""

import json
import logging
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import zip_longest
from pathlib import Path
from typing import Any

from apps.demo.simulation.outages import SimulatedOutage, SimulatedTrouble
from apps.demo.simulation.world import DOMAIN

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 60
REPEAT_SECONDS = 15 * 60
# The delay between the start or end of an outage and its message.
_NOTICE_SECONDS = 30
_LONGEST_BACKOFF_SECONDS = 30
_REASONS = {
    "heartbeat": "first notification",
    "firing": "first notification",
    "repeat": "repeat interval elapsed",
    "resolved": "all alerts resolved",
}


@dataclass(frozen=True, slots=True, order=True)
class SimulatedAlert:
    """A message to send at `due`: an outage starts, continues or ends, or a heartbeat.

    A heartbeat has no outage.
    """

    due: int
    reason: str
    outage: SimulatedOutage | None = None


def notifications(
    trouble: SimulatedTrouble, since: float, until: float
) -> Iterator[SimulatedAlert]:
    """Yield the messages due in (since, until], in order.

    Of heartbeats and of repeats, only the newest one is included.
    """
    sent: list[SimulatedAlert] = []
    for outage in trouble.outages(since - _NOTICE_SECONDS, until):
        begins = outage.started + _NOTICE_SECONDS
        ends = outage.ended + _NOTICE_SECONDS
        sent += [SimulatedAlert(begins, "firing", outage), SimulatedAlert(ends, "resolved", outage)]
        repeats = (min(int(until), ends - 1) - begins) // REPEAT_SECONDS
        if repeats > 0 and until < ends:
            sent.append(SimulatedAlert(begins + repeats * REPEAT_SECONDS, "repeat", outage))
    sent.append(SimulatedAlert(int(until) // HEARTBEAT_SECONDS * HEARTBEAT_SECONDS, "heartbeat"))
    due = [notification for notification in sent if since < notification.due <= until]
    yield from sorted(due, key=lambda notification: notification.due)


def _labels(outage: SimulatedOutage) -> dict[str, str]:
    name = "ServiceDown"
    severity = "critical"
    host = outage.service
    if outage.rack is not None:
        name = "NodesLost"
        severity = "warning"
        host = f"rack{outage.rack + 1}"
    elif outage.minor:
        name = "ServiceSlow"
        severity = "warning"
    return {
        "alertname": name,
        "service": outage.service,
        "severity": severity,
        "instance": f"{host}.{DOMAIN}",
    }


def payload(notification: SimulatedAlert, origin: int) -> dict[str, Any]:
    """Return the body that Alertmanager's webhook sends for a notification."""
    outage = notification.outage
    ended = None
    if outage is None:
        started = origin
        summary = "The monitoring of the farm is alive"
        labels = {"alertname": "Watchdog", "severity": "none"}
        group = labels
    else:
        started = outage.started
        summary = outage.summary
        labels = _labels(outage)
        group = {"alertname": labels["alertname"], "service": labels["service"]}
        if notification.reason == "resolved":
            ended = outage.ended

    text = "\xff".join(f"{name}\xff{value}" for name, value in sorted(labels.items()))
    alert = {
        "status": "firing" if ended is None else "resolved",
        "labels": labels,
        "annotations": {"summary": summary},
        "startsAt": _time(started),
        "endsAt": "0001-01-01T00:00:00Z" if ended is None else _time(ended),
        "generatorURL": f"http://prometheus.{DOMAIN}/graph",
        "fingerprint": blake2b(text.encode(), digest_size=8).hexdigest(),
    }
    return {
        "version": "4",
        "groupKey": "{}:{"
        + ", ".join(f'{name}="{value}"' for name, value in sorted(group.items()))
        + "}",
        "truncatedAlerts": 0,
        "status": alert["status"],
        "receiver": "opsportal",
        "notification_reason": _REASONS[notification.reason],
        "groupLabels": group,
        "commonLabels": labels,
        "commonAnnotations": alert["annotations"],
        "externalURL": f"http://alertmanager.{DOMAIN}",
        "alerts": [alert],
    }


def _time(moment: int) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class AlertSender(threading.Thread):
    """A thread that posts notifications.

    The file `cursor` has the time of the last accepted notification.
    """

    def __init__(
        self, trouble: SimulatedTrouble, url: str, token_file: Path, cursor: Path, since: float
    ) -> None:
        super().__init__(name="alerts", daemon=True)
        self.trouble = trouble
        self.url = url
        self.token_file = token_file
        self.cursor = cursor
        self.done = float(cursor.read_text()) if cursor.exists() else since
        self.stopped = threading.Event()
        self._wait = 1.0

    def run(self) -> None:
        """Send due messages every second until stopped."""
        while not self.stopped.wait(self._wait):
            now = datetime.now(UTC).timestamp()
            if self.send_due(now):
                self._wait = 1.0
            else:
                self._wait = min(_LONGEST_BACKOFF_SECONDS, self._wait * 2)

    def send_due(self, now: float) -> bool:
        """Send the messages due up to `now`, in order.

        Stops at the first message that is not accepted, and returns False.
        """
        waiting = list(notifications(self.trouble, self.done, now))
        for notification, following in zip_longest(waiting, waiting[1:]):
            if self.stopped.is_set() or not self._post(payload(notification, self.trouble.origin)):
                return False
            if following is None or following.due > notification.due:
                self.done = notification.due
                part = self.cursor.with_suffix(".part")
                part.write_text(str(notification.due), encoding="utf-8")
                part.replace(self.cursor)
        return True

    def _post(self, body: dict[str, Any]) -> bool:
        try:
            token = self.token_file.read_text(encoding="utf-8").strip()
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
            data = json.dumps(body).encode()
            request = urllib.request.Request(self.url, data, headers)  # noqa: S310
            with urllib.request.urlopen(request, timeout=10):  # noqa: S310
                return True
        except (OSError, urllib.error.URLError) as error:
            if self._wait >= _LONGEST_BACKOFF_SECONDS:
                log.warning("%s does not accept alerts, retrying: %s", self.url, error)
            return False
