"""Takes captured jobs into the journal, and delivers them to the sinks: a drain in its own thread for each."""

import signal
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from apps.archive.capture.delivery.drain import Drain
from apps.archive.capture.journal.journal import Journal
from apps.archive.handover.batches import Batch
from apps.archive.handover.report import MOST_NAMED, SinkReport, printable
from apps.archive.sinks.base import Writer
from apps.clusters.schedulers.base import Identity

RETRY_SIGNAL = signal.SIGUSR1  # to the process that holds the journal
RETIRED = "no longer among the sinks: give its URL again, or let `capture --forget-sink` give up what it lacks"
_STOP_SECONDS = 5.0


class KeeperDied(Exception):
    """The process of the journal has died: capture must be restarted."""


class Keeper:
    """Takes the jobs of capture, in its own process or, as `KeeperProcess`, in another."""

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
        """Return the newest captured spool entry of each job id that was in the spool at the last scan."""
        return self._journal.known(cluster)

    def add(self, batch: Batch) -> int:
        """Write the jobs that are new, durably, as one. Returns how many were. Raises what the journal does."""
        count = self._journal.add(batch)
        self._wake()
        return count

    def forget(self, cluster: str, job_ids: Sequence[str]) -> None:
        """Drop what is known of spool entries that are gone from the spool."""
        self._journal.forget(cluster, job_ids)

    def progress(self) -> tuple[int, int]:
        """Return how many jobs the sinks lack, and how many were delivered to them."""
        return sum(drain.backlog()[0] for drain in self._drains), sum(drain.written for drain in self._drains)

    def reports(self) -> dict[str, SinkReport]:
        """Return the state of each sink by its name."""
        given = {
            drain.name: self._report(
                drain.name, last_error=drain.last_error, retry_seconds=drain.delay_seconds, written=drain.written
            )
            for drain in self._drains
        }
        retired = self._journal.retired()
        return given | {name: self._report(name, last_error=RETIRED, retired=True) for name in retired}

    def retry_refused(self) -> None:
        """Try again what sinks have refused. May be called from a signal handler."""
        for drain in self._drains:
            drain.retry_refused.set()
        self._wake()

    def _wake(self) -> None:
        for drain in self._drains:
            drain.wake.set()

    def _report(self, name: str, *, last_error: str, **values: Any) -> SinkReport:
        behind, oldest_at = self._journal.backlog(name)
        refused, newest = self._journal.refusals(name, newest=MOST_NAMED)
        return SinkReport(
            behind=behind,
            lag_seconds=max(0.0, round((datetime.now(UTC) - oldest_at).total_seconds(), 1)) if oldest_at else 0,
            last_error=printable(last_error),
            refused=refused,
            last_refused=tuple((printable(job_id), printable(why)) for job_id, why in newest),
            **values,
        )
