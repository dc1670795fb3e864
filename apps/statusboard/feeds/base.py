"""The base of monitoring feed formats: bytes in, alerts out, without Django or services."""

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
    """The status of an alert. A heartbeat only shows that the monitoring system is alive."""

    OPEN = "open"
    RESOLVED = "resolved"
    HEARTBEAT = "heartbeat"


@dataclass(frozen=True)
class Alert:
    """An alert of a monitoring system; `dedup_key` and `started_at` identify an episode.

    Without a start, the alert belongs to the episode that was open at `reported_at`, or to one that
    starts then; without `reported_at`, the arrival of the payload counts. Pages link to `url`:
    values that are not http(s) URLs are dropped, whatever the format.
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
    """A maintenance window as planned by its source; `effect` on the service is "" if unknown."""

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
    """The content of a payload; `notes` lists what was skipped, and why.

    If it `is_complete`, anything else that the source reported as open or planned is over or
    cancelled. `as_of` is the time of the content, if known: later reports are not included in it.
    """

    alerts: tuple[Alert, ...] = ()
    notes: tuple[str, ...] = ()
    windows: tuple[Window, ...] = ()
    is_complete: bool = False
    as_of: datetime | None = None


class Feed(ABC):
    """A feed format.

    `name` is the value of a source's field `feed`; `mapping` is the source's mapping of names to
    paths. A feed with `pulls` can be fetched: these are paths below the source's URL. Their
    concatenated responses are one payload, usually a complete list. A `question` is JSON that is
    posted there.
    """

    name: str
    pulls: tuple[str, ...] = ()
    question: bytes = b""

    def __init__(self, mapping: Mapping[str, str] = MappingProxyType({})) -> None:
        self.mapping = mapping

    @classmethod
    def addresses(cls, url: str) -> list[str]:
        """Return the URLs to fetch from a source with this URL.

        Raises `ValueError` if the URL is not valid for this feed.
        """
        return [f"{url.rstrip('/')}/{path}" if path else url for path in cls.pulls]

    @abstractmethod
    def parse(self, body: bytes) -> Message:
        """Parse a payload. Raises only `UnreadablePayload`, whatever the bytes are."""
