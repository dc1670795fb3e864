"""Interface of both ways to the portal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from apps.core.domain.masking import Rule
from capture.journal.journal import JournaledBatch


class PortalAway(Exception):
    """The portal cannot be reached, or takes nothing now.

    Nothing is wrong with the batch: try again later.
    """


class BatchTooLarge(Exception):
    """The portal, or a proxy, takes no batch of this size."""


class BatchRefused(Exception):
    """The portal does not take this batch; the message says why."""


@dataclass(frozen=True, slots=True)
class Sender:
    """Whose batches they are; `sinks` are the URLs of those that get them beside the portal's."""

    cluster: str
    host: str
    sinks: Sequence[str] = ()


class Portal(Protocol):
    """All but `close` raise `PortalAway`. All calls come from one thread."""

    def take(self, batch: JournaledBatch) -> None:
        """Return when the batch is durable there; one that it has already changes nothing.

        Raises `BatchTooLarge`, `BatchRefused` and `JournalOutdated`.
        """

    def report(self, detail: Mapping[str, Any]) -> None:
        """Tell what capture says of itself."""

    def masking_rules(self) -> list[Rule]:
        """Return the rules in force."""

    def undelivered(self, journal: str) -> int:
        """Return how many batches of a journal are not delivered,
        where the sender has sinks of its own.
        """

    def close(self) -> None:
        """Let go of connections. They are made anew when needed."""
