"""Uptime Kuma's webhook, and the API of a status page: monitors and their latest heartbeats.

`heartbeat.time` is UTC without a zone; a test message has no heartbeat. A status page has only some
of the monitors: others may be down.
"""

from datetime import UTC, datetime
from typing import Any

from apps.statusboard.feeds.base import Alert, Feed, Message, Status, UnreadablePayload
from apps.statusboard.feeds.values import json_documents, json_of, text_of, without_empty

_DOWN, _UP, _PENDING, _MAINTENANCE = range(4)


class UptimeKuma(Feed):
    name = "uptime-kuma"
    pulls = ("api/status-page/", "api/status-page/heartbeat/")

    @classmethod
    def addresses(cls, url: str) -> list[str]:
        base, _, page = url.rstrip("/").partition("/status/")
        if not page or "/" in page:
            raise ValueError("Enter the address of a status page: https://…/status/NAME")
        return [f"{base}/{path}{page}" for path in cls.pulls]

    def parse(self, body: bytes) -> Message:
        if b'"heartbeatList"' in body:
            return _status_page(body)
        payload = json_of(body, "an Uptime Kuma message")
        beat = payload.get("heartbeat")
        monitor = payload.get("monitor")
        if beat is None and "msg" in payload:
            return Message()
        # A test message is ignored.
        if not isinstance(beat, dict) or not isinstance(monitor, dict):
            raise UnreadablePayload(
                "not an Uptime Kuma message: “heartbeat” or “monitor” is missing"
            )
        try:
            at = _time(beat)
        except ValueError as error:
            raise UnreadablePayload(f"invalid time: {error}") from error
        if beat.get("status") not in (_DOWN, _UP):
            return Message()
        # Pending and maintenance are ignored.
        return Message((_alert(monitor, beat, at),))


def _status_page(body: bytes) -> Message:
    monitors: dict[str, dict[str, Any]] = {}
    beats: dict[str, list[dict[str, Any]]] = {}
    try:
        for answer in json_documents(body, "answers about a status page"):
            groups = answer.get("publicGroupList") or []
            for group in groups:
                monitors |= {text_of(monitor["id"]): monitor for monitor in group["monitorList"]}
            beats |= answer.get("heartbeatList") or {}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnreadablePayload(
            f"not answers about a status page: {type(error).__name__} {error}"
        ) from error

    alerts = []
    notes = []
    for key, monitor in monitors.items():
        try:
            if latest := _latest(beats.get(key) or []):
                alerts.append(_alert(monitor, latest, _time(latest)))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            notes.append(f"monitor {key[:40]} skipped: {type(error).__name__} {error}")
    return Message(tuple(alerts), tuple(notes))


def _latest(beats: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the newest beat if it is up, else the beat at which the monitor went down.

    Return None for a pending monitor or one in maintenance.
    """
    if not beats or beats[-1]["status"] not in (_DOWN, _UP):
        return None
    latest = beats[-1]
    for beat in reversed(beats):
        if latest["status"] == _UP or beat["status"] != _DOWN:
            break
        latest = beat
    return latest


def _time(beat: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(str(beat.get("time"))[:19]).replace(tzinfo=UTC)


def _alert(monitor: dict[str, Any], beat: dict[str, Any], at: datetime) -> Alert:
    is_open = beat["status"] == _DOWN
    return Alert(
        dedup_key=f"monitor {text_of(monitor.get('id'))}"[:200],
        status=Status.OPEN if is_open else Status.RESOLVED,
        started_at=None,
        ended_at=None if is_open else at,
        reported_at=at,
        labels=_labels(monitor),
        title=text_of(monitor.get("name")),
        text=text_of(beat.get("msg")),
        url=text_of(monitor.get("url")),
        severity="critical",
    )


def _labels(monitor: dict[str, Any]) -> dict[str, str]:
    """Return the name of the monitor, and its tags that have a value."""
    tags = [tag for tag in monitor.get("tags") or [] if isinstance(tag, dict)]
    named = {text_of(tag.get("name")): text_of(tag.get("value")) for tag in tags}
    return {"monitor": text_of(monitor.get("name")), **without_empty(named)}
