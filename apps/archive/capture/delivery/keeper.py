"""What becomes of jobs that were read: the journal, and a drain in a thread of its own for each sink."""

import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Protocol

from apps.archive.capture.delivery.drain import Drain
from apps.archive.capture.journal.journal import Journal
from apps.archive.handover.batches import Batch
from apps.archive.handover.report import MOST_TOLD
from apps.archive.sinks.base import Writer
from apps.clusters.schedulers.base import Identity

RETRY_SIGNAL = signal.SIGUSR1  # to the process that holds the journal
RETIRED = "no longer among the sinks: give its URL again, or let `capture --forget-sink` give up what it lacks"
_STOP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """How far one sink is behind."""

    name: str
    behind: int
    oldest_at: datetime | None
    last_error: str
    retry_seconds: float
    written: int
    refused_count: int
    refused: tuple[tuple[str, str], ...]  # job id and reason of the newest
    retired: bool = False  # no longer among the sinks; the journal keeps what it lacks


class KeeperDied(Exception):
    """The process that keeps the jobs is gone: capture has to end, and to be started anew."""


class Keeping(Protocol):
    """What capture hands its jobs to, in this process or in another."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def known(self, cluster: str) -> dict[str, Identity]:
        """Return the newest captured spool entry of each job id that was in the spool when last looked."""
        ...

    def add(self, batch: Batch) -> int:
        """Write the jobs that are new, durably, as one. Returns how many were. Raises what the journal does."""
        ...

    def forget(self, cluster: str, job_ids: Sequence[str]) -> None:
        """Drop what is known of spool entries that are gone from the spool."""
        ...

    def progress(self) -> tuple[int, int]:
        """Return how many jobs the sinks lack, and how many they were given."""
        ...

    def statuses(self) -> tuple[SinkStatus, ...]: ...

    def retry_refused(self) -> None:
        """Give every sink again what it did not take. May be called from a signal handler."""
        ...


class Keeper:
    """Keeps jobs in this process."""

    def __init__(self, journal: Journal, sinks: Sequence[Writer]) -> None:
        self._journal = journal
        self._drains = [Drain(journal=journal, sink=sink) for sink in sinks]
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=d.run, args=(self._stopping,), daemon=True) for d in self._drains]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._wake()
        for thread in self._threads:
            thread.join(timeout=_STOP_SECONDS)

    def known(self, cluster: str) -> dict[str, Identity]:
        return self._journal.known(cluster)

    def add(self, batch: Batch) -> int:
        count = self._journal.add(batch)
        self._wake()
        return count

    def forget(self, cluster: str, job_ids: Sequence[str]) -> None:
        self._journal.forget(cluster, job_ids)

    def progress(self) -> tuple[int, int]:
        return sum(drain.backlog()[0] for drain in self._drains), sum(drain.written for drain in self._drains)

    def statuses(self) -> tuple[SinkStatus, ...]:
        status = partial(_status, self._journal)
        given = [
            status(drain.name, last_error=drain.last_error, retry_seconds=drain.delay_seconds, written=drain.written)
            for drain in self._drains
        ]
        return (*given, *(status(name, last_error=RETIRED, retired=True) for name in self._journal.retired()))

    def retry_refused(self) -> None:
        for drain in self._drains:
            drain.retry_refused.set()
        self._wake()

    def _wake(self) -> None:
        for drain in self._drains:
            drain.wake.set()


def _status(
    journal: Journal, name: str, *, last_error: str, retry_seconds: float = 0, written: int = 0, retired: bool = False
) -> SinkStatus:
    behind, oldest_at = journal.backlog(name)
    count, newest = journal.refusals(name, newest=MOST_TOLD)
    return SinkStatus(
        name=name,
        behind=behind,
        oldest_at=oldest_at,
        last_error=last_error,
        retry_seconds=retry_seconds,
        written=written,
        refused_count=count,
        refused=tuple(newest),
        retired=retired,
    )
