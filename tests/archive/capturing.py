"""Capture in the process of a test."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from apps.archive.capture.capture import Capture
from apps.archive.capture.delivery.drain import Drain
from apps.archive.capture.delivery.keeper import Keeper
from apps.archive.capture.journal.journal import Journal
from apps.archive.sinks.base import SinkRefused, SinkUnavailable, Writer
from apps.archive.wire.entry import CapturedJob
from apps.clusters.schedulers.base import Spool
from apps.core.domain.masking import Masker


class MemorySink:
    """Keeps jobs, unless it is told to be away or to refuse batches with some of them."""

    name = "store"

    def __init__(self) -> None:
        self.jobs: list[CapturedJob] = []
        self.away = False
        self.refuses: set[str] = set()

    def write(self, jobs: Sequence[CapturedJob]) -> Mapping[int, str]:
        if self.away:
            raise SinkUnavailable("connection refused")
        if self.refuses & {job.job_id for job in jobs}:
            raise SinkRefused("not this one")
        self.jobs += jobs
        return {}

    def close(self) -> None:
        """Nothing is open."""

    @property
    def ids(self) -> list[int]:
        return sorted(int(job.job_id) for job in self.jobs)


def capture_of(spool: Spool, journal: Journal, /, *sinks: Writer, **changes: Any) -> Capture:
    """Return what captures a spool of Slurm, unless told otherwise, and masks what is called a token."""
    values = {
        "cluster": "alps",
        "scheduler": "slurm",
        "spool": spool,
        "keeper": Keeper(journal, sinks),
        "masker": Masker(names="(?i)token", key=b"key"),
        "clock": lambda: datetime.now(UTC),
    }
    return Capture(**values | changes)


@contextmanager
def draining(journal: Journal, sink: Writer) -> Iterator[Drain]:
    """Carry jobs from the journal to the sink until the end of the block."""
    drain, stopping = Drain(journal=journal, sink=sink), threading.Event()
    thread = threading.Thread(target=drain.run, args=(stopping,))
    thread.start()
    try:
        yield drain
    finally:
        stopping.set()
        drain.wake.set()
        thread.join(60)
    assert not thread.is_alive()


@contextmanager
def running(capture: Capture, rescan_seconds: float = 600) -> Iterator[Capture]:
    """Let it run until the end of the block, and then to its own."""
    thread = threading.Thread(target=capture.run, kwargs={"rescan_seconds": rescan_seconds})
    thread.start()
    try:
        yield capture
    finally:
        capture.stop()
        thread.join(60)
    assert not thread.is_alive()
