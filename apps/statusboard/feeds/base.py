"""What a monitoring format is: bytes in, alerts out. A format knows neither Django nor the portal's services."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol


class UnreadablePayload(Exception):
    """The payload is not of this format; the message says what is wrong with it."""


class Status(StrEnum):
    """What an alert tells: a problem goes on, it is over, or only that the monitoring lives."""

    OPEN = "open"
    RESOLVED = "resolved"
    HEARTBEAT = "heartbeat"


@dataclass(frozen=True)
class Alert:
    """One problem as the monitoring tells it; `dedup_key` and `started_at` together are one episode of it."""

    dedup_key: str
    status: Status
    started_at: datetime
    ended_at: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    text: str = ""
    url: str = ""
    severity: str = ""


@dataclass(frozen=True)
class Message:
    """What one payload holds; `notes` says what was left out of it, and why."""

    alerts: tuple[Alert, ...]
    notes: tuple[str, ...] = ()


class Feed(Protocol):
    """A format. `name` is what a source is given in the back office."""

    name: str

    def parse(self, body: bytes) -> Message:
        """Read one payload. Raises `UnreadablePayload`, and nothing else, whatever the bytes are."""
        ...
