"""Tells the portal of planted outages as an Alertmanager would: its v4 payloads, in order, until they are accepted."""

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

from apps.demo.simulation.outages import Outage, Trouble
from apps.demo.simulation.world import DOMAIN

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 60
REPEAT_SECONDS = 15 * 60
_NOTICE_SECONDS = 30  # from the begin or end of an outage to the message
_NEVER = "0001-01-01T00:00:00Z"
_LONGEST_BACKOFF_SECONDS = 30


@dataclass(frozen=True, slots=True, order=True)
class Notification:
    """A message due at `due`: an outage that begins, goes on or ends; without an outage, the heartbeat."""

    due: int
    reason: str
    outage: Outage | None = None


def notifications(trouble: Trouble, since: float, until: float) -> Iterator[Notification]:
    """Yield what is to be sent in (since, until], in order. Only the newest heartbeat and repeat of each are kept."""
    found = []
    for outage in trouble.outages(since - _NOTICE_SECONDS, until):
        begins, ends = outage.started + _NOTICE_SECONDS, outage.ended + _NOTICE_SECONDS
        found += [Notification(begins, "firing", outage), Notification(ends, "resolved", outage)]
        repeats = (min(int(until), ends - 1) - begins) // REPEAT_SECONDS
        if repeats > 0 and until < ends:
            found.append(Notification(begins + repeats * REPEAT_SECONDS, "repeat", outage))
    found.append(Notification(int(until) // HEARTBEAT_SECONDS * HEARTBEAT_SECONDS, "heartbeat"))
    yield from sorted((n for n in found if since < n.due <= until), key=lambda n: n.due)


def payload(notification: Notification, origin: int) -> dict[str, Any]:
    """Return the body that Alertmanager's webhook sends for a notification."""
    outage = notification.outage
    if outage is None:
        labels = {"alertname": "Watchdog", "severity": "none"}
        alert = _alert(labels, "The monitoring of the farm is alive", origin, None)
        return _message([alert], labels, "first notification")
    labels = {
        "alertname": "NodesLost" if outage.rack is not None else "ServiceSlow" if outage.minor else "ServiceDown",
        "service": outage.service,
        "severity": "warning" if outage.minor or outage.rack is not None else "critical",
        "instance": f"rack{outage.rack + 1}.{DOMAIN}" if outage.rack is not None else f"{outage.service}.{DOMAIN}",
    }
    resolved = notification.reason == "resolved"
    alert = _alert(labels, outage.summary, outage.started, outage.ended if resolved else None)
    reasons = {"firing": "first notification", "repeat": "repeat interval elapsed", "resolved": "all alerts resolved"}
    return _message([alert], {name: labels[name] for name in ("alertname", "service")}, reasons[notification.reason])


def _alert(labels: dict[str, str], summary: str, started: int, ended: int | None) -> dict[str, Any]:
    text = "\xff".join(f"{name}\xff{value}" for name, value in sorted(labels.items()))
    return {
        "status": "firing" if ended is None else "resolved",
        "labels": labels,
        "annotations": {"summary": summary},
        "startsAt": _time(started),
        "endsAt": _NEVER if ended is None else _time(ended),
        "generatorURL": f"http://prometheus.{DOMAIN}/graph",
        "fingerprint": blake2b(text.encode(), digest_size=8).hexdigest(),
    }


def _message(alerts: list[dict[str, Any]], group: dict[str, str], reason: str) -> dict[str, Any]:
    labels = ", ".join(f'{name}="{value}"' for name, value in sorted(group.items()))
    return {
        "version": "4",
        "groupKey": f"{{}}:{{{labels}}}",
        "truncatedAlerts": 0,
        "status": alerts[0]["status"],
        "receiver": "opsportal",
        "notification_reason": reason,
        "groupLabels": group,
        "commonLabels": alerts[0]["labels"],
        "commonAnnotations": alerts[0]["annotations"],
        "externalURL": f"http://alertmanager.{DOMAIN}",
        "alerts": alerts,
    }


def _time(moment: int) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class AlertSender(threading.Thread):
    """Posts notifications in a thread of its own. How far it got is kept in `cursor`, a file."""

    def __init__(self, trouble: Trouble, url: str, token_file: Path, cursor: Path, since: float) -> None:
        super().__init__(name="alerts", daemon=True)
        self.trouble = trouble
        self.url = url
        self.token_file = token_file
        self.cursor = cursor
        self.done = float(cursor.read_text()) if cursor.exists() else since
        self.stopped = threading.Event()
        self._wait = 1.0

    def run(self) -> None:
        """Send what is due every second until stopped."""
        while not self.stopped.wait(self._wait):
            now = datetime.now(UTC).timestamp()
            self._wait = 1.0 if self.send_due(now) else min(_LONGEST_BACKOFF_SECONDS, self._wait * 2)

    def send_due(self, now: float) -> bool:
        """Send what is due up to `now` in order; at the first that is not accepted stop and return False."""
        waiting = list(notifications(self.trouble, self.done, now))
        for notification, following in zip_longest(waiting, waiting[1:]):
            if self.stopped.is_set() or not self._post(payload(notification, self.trouble.origin)):
                return False
            if following is None or following.due > notification.due:
                self._remember(notification.due)
        return True

    def _post(self, body: dict[str, Any]) -> bool:
        try:
            token = self.token_file.read_text(encoding="utf-8").strip()
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
            request = urllib.request.Request(self.url, json.dumps(body).encode(), headers)  # noqa: S310
            with urllib.request.urlopen(request, timeout=10):  # noqa: S310
                return True
        except (OSError, urllib.error.URLError) as error:
            if self._wait >= _LONGEST_BACKOFF_SECONDS:
                log.warning("alerts are not accepted by %s, trying on: %s", self.url, error)
            return False

    def _remember(self, due: int) -> None:
        self.done = due
        part = self.cursor.with_suffix(".part")
        part.write_text(str(due), encoding="utf-8")
        part.replace(self.cursor)
