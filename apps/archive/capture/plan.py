"""What a capture is to do, told once by the command, which knows Django, to processes that need not.

The plan holds secrets: it goes from program to program in memory alone.
"""

import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from apps.archive.capture.watch.base import Watch


@dataclass(frozen=True, slots=True)
class PlannedSink:
    """A sink that is opened where it is needed. `uses_models`: it wants Django with the portal's models.

    `begins_ahead`: it is a `BeginsAhead`.
    """

    name: str
    url: str
    uses_models: bool
    begins_ahead: bool = False


@dataclass(frozen=True, slots=True)
class PlannedPlace:
    """Where to report to: a portal's URL, or nothing for the one whose database this is; beside which sink."""

    url: str
    beside: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a capture needs to know. `settings` are Django's, for sinks."""

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
    sinks: tuple[PlannedSink, ...]
    places: tuple[PlannedPlace, ...]
    settings: Mapping[str, Any]
    log_format: str
    log_levels: Mapping[str, str]  # by the name of the logger; that of the root is empty

    def keep(self) -> int:
        """Return a file in memory with the plan, for a program that takes the place of this one."""
        descriptor = os.memfd_create("plan", 0)
        with open(descriptor, "wb", closefd=False) as file:
            pickle.dump(self, file)
        return descriptor

    @classmethod
    def take(cls, descriptor: int) -> Self:
        """Read what `keep` has kept, and let go of the file."""
        with open(descriptor, "rb") as file:
            file.seek(0)
            return pickle.load(file)  # type: ignore[no-any-return]  # noqa: S301 -- of this program
