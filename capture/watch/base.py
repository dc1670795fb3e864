"""Interface of sources of file events, and how operators choose between them."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol


class Watch(StrEnum):
    """Where file events come from.

    `AUTO` is inotify, and polling too for directories on a network file system.
    """

    AUTO = "auto"
    INOTIFY = "inotify"
    POLLING = "polling"


@dataclass(frozen=True, slots=True)
class FileEvent:
    """Something at `path`; `written` is a write to a file that is still open.

    `path` is None where events were lost.
    """

    path: Path | None
    is_directory: bool = False
    written: bool = False


class EventSource(Protocol):
    """File events of some directories, each watched flat.

    One thread reads them, another may add and remove.
    """

    def add(self, directory: Path) -> None:
        """Watch a directory that is not watched. Raises `OSError`."""

    def remove(self, directory: Path) -> None:
        """End the watch of a directory that was added, even if it has ended already."""

    def has(self, directory: Path) -> bool:
        """Whether this directory is still watched: its watch ends when it is removed."""

    def read(self, timeout: float) -> Iterable[FileEvent]:
        """Return the next events as soon as there are any; nothing after `timeout` seconds."""

    def close(self) -> None: ...
