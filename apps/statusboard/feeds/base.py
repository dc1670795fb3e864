"""Base of a monitoring feed format: bytes in, alerts out,
without Django or the portal's services.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from urllib.parse import urlsplit


class UnreadablePayload(Exception):
    """The payload does not have this format; the message says why."""


class Status(StrEnum):
    """Status of an alert; a heartbeat only shows that the monitoring system is alive."""

    OPEN = "open"
    RESOLVED = "resolved"
    HEARTBEAT = "heartbeat"


@dataclass(frozen=True)
class Alert:
    """An alert of a monitoring system; `dedup_key` and `started_at` identify an episode.

    Without a start, it is the episode that was open at `reported_at`, or one that starts then;
    without either, when the payload arrived. Pages link to `url`: one that is not of the web is
    dropped, whatever the format.
    """

    dedup_key: str
    status: Status
    started_at: datetime | None
    ended_at: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    text: str = ""
    url: str = ""
    severity: str = ""
    reported_at: datetime | None = None

    def __post_init__(self) -> None:
        try:
            is_link = urlsplit(self.url).scheme in ("http", "https")
        except ValueError:
            is_link = False
        if not is_link:
            object.__setattr__(self, "url", "")


@dataclass(frozen=True)
class Window:
    """A maintenance window as its source plans it; `effect` is that on the service,
    or "" if unknown.
    """

    key: str
    starts_at: datetime
    ends_at: datetime
    title: str
    text: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    effect: str = ""
    is_cancelled: bool = False


@dataclass(frozen=True)
class Message:
    """Content of a payload; `notes` lists what was skipped, and why.

    If it `is_complete`, whatever else the source reported as open, or planned, is over or
    cancelled; `as_of` is when it was made, if it says so: what was reported since is not in it.
    """

    alerts: tuple[Alert, ...] = ()
    notes: tuple[str, ...] = ()
    windows: tuple[Window, ...] = ()
    is_complete: bool = False
    as_of: datetime | None = None


class Feed(ABC):
    """A feed format; `name` is the value of a source's `feed` field, `mapping` that of the source,
    names to text.

    One that sets `pulls` can be fetched: paths below the source's address, whose answers, one after
    the other, are a payload, usually a complete list. With a `question`, that JSON is posted there.
    """

    name: str
    pulls: tuple[str, ...] = ()
    question: bytes = b""

    def __init__(self, mapping: Mapping[str, str] = MappingProxyType({})) -> None:
        self.mapping = mapping

    @classmethod
    def addresses(cls, url: str) -> list[str]:
        """Return what is fetched from a source with this address.

        Raises `ValueError` if it is not one of the kind.
        """
        return [f"{url.rstrip('/')}/{path}" if path else url for path in cls.pulls]

    @abstractmethod
    def parse(self, body: bytes) -> Message:
        """Parse a payload. Raises only `UnreadablePayload`, whatever the bytes are."""
