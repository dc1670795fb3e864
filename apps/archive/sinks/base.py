"""What every archive sink offers."""

from collections.abc import Sequence
from typing import Protocol

from apps.archive.capture.entry import CapturedJob


class SinkError(Exception):
    """A sink does not keep what it was given."""


class SinkUnavailable(SinkError):
    """The sink cannot be reached now. Nothing is wrong with the jobs: try again later."""


class SinkRefused(SinkError):
    """The sink can be reached and does not take these jobs; the message says why."""


class Sink(Protocol):
    """A place that keeps captured jobs. It may be given the same job more than once and must keep it once."""

    name: str

    def write(self, jobs: Sequence[CapturedJob]) -> None:
        """Keep all of `jobs` durably, or raise `SinkUnavailable` or `SinkRefused`."""
        ...

    def close(self) -> None:
        """Let go of connections. Called when capture ends, in the thread that wrote."""
        ...
