"""The configuration of a capture process, built by the command, which needs Django,
for a program that does not.

The plan contains secrets: it is passed between programs in memory, and kept for the next start
where only its user can read it (`kept_plan`).
"""

import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from capture.portals.base import Portal, Sender
from capture.watch.base import Watch


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a capture needs to know.

    `portal` is the portal's address, or how to connect to its database: then `broker` is the URL of
    its workers' Redis.
    """

    cluster: str
    scheduler: str
    spool: Path
    directory: Path
    once: bool
    patience_seconds: float
    rescan_seconds: float
    watch: Watch
    mask_names: str
    masking_key: bytes
    portal: str
    token: str
    broker: str
    most_bytes: int  # in the database's intake, before it takes no more
    host: str
    sinks: tuple[str, ...]
    log_format: str
    log_levels: Mapping[str, str]  # by the name of the logger; that of the root is empty

    def open_portal(self) -> Portal:
        """Return the way to the portal; what it needs is loaded only now."""
        sender = Sender(self.cluster, self.host, self.sinks)
        if self.portal.startswith(("http://", "https://")):
            from capture.portals.http import HttpPortal

            return HttpPortal(self.portal, self.token, sender)
        from capture.portals.database import DatabasePortal

        return DatabasePortal(self.portal, sender, broker=self.broker, most_bytes=self.most_bytes)

    def keep(self) -> int:
        """Return a file in memory with the plan, for a program that takes the place of this one."""
        descriptor = os.memfd_create("plan", 0)
        with open(descriptor, "wb", closefd=False) as file:
            file.write(self.packed())
        return descriptor

    def packed(self) -> bytes:
        """Return the plan as bytes, of which `of` makes it again."""
        return pickle.dumps(self)

    @classmethod
    def of(cls, packed: bytes) -> Self:
        return pickle.loads(packed)  # type: ignore[no-any-return]  # noqa: S301 -- of this program

    @classmethod
    def take(cls, descriptor: int) -> Self:
        """Read what `keep` has kept, and let go of the file."""
        with open(descriptor, "rb") as file:
            file.seek(0)
            return cls.of(file.read())
