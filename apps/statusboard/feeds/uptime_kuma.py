"""Uptime Kuma's webhook. `heartbeat.time` is UTC without a zone; a test message has no heartbeat."""

from datetime import UTC, datetime
from typing import Any

from apps.statusboard.feeds.base import Alert, Feed, Message, Status, UnreadablePayload
from apps.statusboard.feeds.reading import json_of, text_of

_DOWN, _UP, _PENDING, _MAINTENANCE = range(4)


class UptimeKuma(Feed):
    name = "uptime-kuma"

    def parse(self, body: bytes) -> Message:
        payload = json_of(body, "an Uptime Kuma message")
        beat, monitor = payload.get("heartbeat"), payload.get("monitor")
        if beat is None and "msg" in payload:
            return Message()  # a test
        if not isinstance(beat, dict) or not isinstance(monitor, dict):
            raise UnreadablePayload("not an Uptime Kuma message: “heartbeat” or “monitor” is missing")
        try:
            at = datetime.fromisoformat(str(beat.get("time"))[:19]).replace(tzinfo=UTC)
        except ValueError as error:
            raise UnreadablePayload(f"invalid time: {error}") from error
        if beat.get("status") not in (_DOWN, _UP):
            return Message()  # pending, or maintenance
        is_open = beat["status"] == _DOWN
        return Message(
            (
                Alert(
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
                ),
            )
        )


def _labels(monitor: dict[str, Any]) -> dict[str, str]:
    """Return the name of the monitor, and its tags that have a value."""
    tags = [tag for tag in monitor.get("tags") or [] if isinstance(tag, dict)]
    named = {text_of(tag.get("name")): text_of(tag.get("value")) for tag in tags}
    return {"monitor": text_of(monitor.get("name")), **{name: value for name, value in named.items() if value}}
