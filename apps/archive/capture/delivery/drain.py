"""Carries jobs from the journal to one sink, at the sink's own pace and offset."""

import logging
import threading
from collections.abc import Mapping
from datetime import datetime

from apps.archive.capture.journal.journal import Entries, Journal
from apps.archive.sinks.base import BeginsAhead, Writer, write_all

logger = logging.getLogger(__name__)

FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 30.0
REST_SECONDS = 24 * 3600  # that a refused job is left in peace, however often capture is started, unless asked for
_IDLE_SECONDS = 1.0


class Drain:
    """Runs in a thread of its own for each sink; `wake` says that there is something new."""

    def __init__(self, *, journal: Journal, sink: Writer) -> None:
        self._journal = journal
        self._sink = sink
        self.name = sink.name
        self.wake = threading.Event()
        self.retry_refused = threading.Event()
        self._starting = True
        self.written = 0
        self.last_error = ""
        self._failures = 0
        # What the sink was given and is not noted in the journal yet, with its answer, and what it has begun since.
        self._given: tuple[Entries, Mapping[int, str], Entries | None] | None = None
        self._begun: Entries | None = None

    def run(self, stopping: threading.Event) -> None:
        """Drain until `stopping`; what fails for now is tried again, ever more rarely."""
        while not stopping.is_set() or self._begun:  # which would be there twice, if it were left
            try:
                self._try_refused()
                moved = self._step(last=stopping.is_set())
            except Exception as error:  # the sink or the journal: tell, wait, go on
                self._failed(error)
                self._begun = None  # the journal gives it again
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

    def write_refused(self, *, rested_seconds: int = 0) -> None:
        """Give the sink again what it did not take, and not within `rested_seconds`. Raises `SinkUnavailable`."""
        last = 0
        while page := self._journal.refused(self.name, after=last, rested_seconds=rested_seconds):
            refused = write_all(self._sink, [entry.job for entry, _ in page])
            for index, (entry, _) in enumerate(page):
                if index in refused:
                    self._journal.refuse(self.name, entry, refused[index])
                else:
                    self._journal.accept(self.name, entry.seq)
                    self.written += 1
                last = entry.seq

    def _try_refused(self) -> None:
        """Retry refused jobs: all on request, at the start those that have rested: the cause may be fixed."""
        asked = self.retry_refused.is_set()
        if asked or self._starting:
            self.write_refused(rested_seconds=0 if asked else REST_SECONDS)
            self._starting = False
        if asked:
            self.retry_refused.clear()

    @property
    def delay_seconds(self) -> float:
        """How long the drain waits before it tries again; 0 where all is well."""
        if not self._failures:
            return 0.0
        return min(FIRST_DELAY_SECONDS * 2.0 ** min(self._failures - 1, 10), LONGEST_DELAY_SECONDS)

    def _step(self, *, last: bool = False) -> bool:
        """Write the next batch, and let the sink begin the one after it, unless something is wrong or it is `last`."""
        if not self._given:
            begun, self._begun = self._begun, None
            batch = begun or self._journal.pending(self.name)
            if not batch:
                return False
            following = None if last or self._failures else self._begin_next(batch, begun=begun is not None)
            self._given = batch, write_all(self._sink, batch.jobs), following
        batch, refused, following = self._given  # where the journal's disk was full, that of before: not sent twice
        for index, reason in refused.items():
            entry = batch[index]
            logger.error("%s refuses job %s of %s: %s", self.name, entry.job.job_id, entry.job.cluster, reason)
            self._journal.refuse(self.name, entry, reason)
        self._journal.acknowledge(self.name, batch.numbers[-1])
        self._given, self._begun = None, following
        self.written += len(batch) - len(refused)
        return True

    def _begin_next(self, batch: Entries, *, begun: bool) -> Entries | None:
        """Return what follows `batch`, if there is something and the sink has begun it; `batch` comes first."""
        if not isinstance(self._sink, BeginsAhead):
            return None
        following = self._journal.pending(self.name, after=batch.numbers[-1])
        if not following:
            return None
        if not begun:
            self._sink.begin(batch.jobs)
        self._sink.begin(following.jobs)
        return following

    def _failed(self, error: Exception) -> None:
        reason = str(error).strip() or repr(error)
        if reason != self.last_error:
            logger.warning("%s: %s; the journal keeps what it lacks", self.name, reason)
        self.last_error = reason
        self._failures += 1
