"""Carries jobs from the journal to one sink, at the sink's own pace and offset."""

import logging
import threading
from collections.abc import Mapping
from datetime import datetime

from apps.archive.capture.entry import JournalEntry
from apps.archive.capture.journal import Entries, Journal
from apps.archive.sinks.base import Writer
from apps.archive.sinks.writing import write_all

logger = logging.getLogger(__name__)

FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 30.0
MOST_TOLD = 20
_IDLE_SECONDS = 1.0


class Drain:
    """Runs in a thread of its own for each sink; `wake` says that there is something new."""

    def __init__(self, *, journal: Journal, sink: Writer) -> None:
        self._journal = journal
        self._sink = sink
        self.name = sink.name
        self.wake = threading.Event()
        self.retry_refused = threading.Event()
        self.retry_refused.set()  # once, at the start: the cause may be mended
        self.written = 0
        self.last_error = ""
        self._failures = 0
        self._given: tuple[Entries, Mapping[int, str]] | None = None  # to the sink, and not noted in the journal yet

    def run(self, stopping: threading.Event) -> None:
        """Drain until `stopping`; what fails for now is tried again, ever more rarely."""
        while not stopping.is_set():
            try:
                if self.retry_refused.is_set():
                    self.write_refused()
                    self.retry_refused.clear()
                moved = self._step()
            except Exception as error:  # the sink or the journal: tell, wait, go on
                self._failed(error)
                stopping.wait(self.delay_seconds)
                continue
            self._failures, self.last_error = 0, ""
            if not moved:
                self.wake.wait(_IDLE_SECONDS)
                self.wake.clear()
        self._sink.close()

    def backlog(self) -> tuple[int, datetime | None]:
        """Return how many jobs the sink lacks, and when the oldest was captured."""
        return self._journal.backlog(self.name)

    def refusals(self) -> tuple[int, list[tuple[str, str]]]:
        """Return how many jobs the sink does not take, and id and reason of the newest."""
        return self._journal.refusals(self.name, newest=MOST_TOLD)

    def write_refused(self) -> None:
        """Give the sink again what it did not take. Raises `SinkUnavailable`."""
        last = 0
        while page := [entry for entry, _ in self._journal.refused(self.name, after=last)]:
            refused = write_all(self._sink, [entry.job for entry in page])
            for index, entry in enumerate(page):
                if index in refused:
                    self._journal.refuse(self.name, entry, refused[index])
                else:
                    self._journal.accept(self.name, entry.seq)
                    self.written += 1
            last = page[-1].seq

    @property
    def delay_seconds(self) -> float:
        """How long the drain waits before it tries again; 0 where all is well."""
        if not self._failures:
            return 0.0
        return min(FIRST_DELAY_SECONDS * 2.0 ** min(self._failures - 1, 10), LONGEST_DELAY_SECONDS)

    def _step(self) -> bool:
        if not self._given:
            batch = self._journal.pending(self.name)
            if not batch:
                return False
            self._given = batch, write_all(self._sink, batch.jobs)
        batch, refused = self._given  # where the journal's disk was full, that of before: it is not sent twice
        for index, reason in refused.items():
            self._refuse(batch[index], reason)
        self._journal.acknowledge(self.name, batch.numbers[-1])
        self._given = None
        self.written += len(batch) - len(refused)
        return True

    def _refuse(self, entry: JournalEntry, reason: str) -> None:
        logger.error("%s refuses job %s of %s: %s", self.name, entry.job.job_id, entry.job.cluster, reason)
        self._journal.refuse(self.name, entry, reason)

    def _failed(self, error: Exception) -> None:
        reason = str(error).strip() or repr(error)
        if reason != self.last_error:
            logger.warning("%s: %s; the journal keeps what it lacks", self.name, reason)
        self.last_error = reason
        self._failures += 1
