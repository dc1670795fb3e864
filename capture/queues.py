"""The queues between capture's threads: entries to read, and jobs to write to the journal."""

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from apps.clusters.schedulers.base import Identity, SpoolEntry
from capture.wire.batches import BATCH_JOBS
from capture.wire.entry import CapturedJob

MAX_ENTRIES = 20_000
MAX_BYTES = 6 * 1024 * 1024
BATCH_BYTES = 1536 * 1024
#: How long a scan waits for the reader after each of its parts.
CATCH_UP_SECONDS = 0.05


class WaitingEntries:
    """Spool entries to read, each at most once at a time, some only after a delay.

    Never more than MAX_ENTRIES. Entries beyond that are left out and `overflowed` is set: they are
    still in the spool, and the next scan finds them.
    """

    def __init__(self, *, max_entries: int = MAX_ENTRIES) -> None:
        self._max_entries = max_entries
        self._changed = threading.Condition()
        self._now: deque[SpoolEntry] = deque()
        self._later: list[tuple[float, SpoolEntry]] = []
        self._tries: dict[Path, int] = {}
        self._newest_first = False
        self.overflowed = False

    def __len__(self) -> int:
        return len(self._tries)

    def add(self, entry: SpoolEntry) -> None:
        """Queue an entry to be read as soon as possible, unless it is queued already."""
        with self._changed:
            if entry.path in self._tries:
                return
            if len(self._tries) >= self._max_entries:
                self.overflowed = True
                return
            self._tries[entry.path] = 0
            self._now.append(entry)
            self._changed.notify()

    def take(self, timeout: float) -> SpoolEntry | None:
        """Return an entry to read, or None after `timeout` seconds without one."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                now = time.monotonic()
                if self._later and self._later[0][0] <= now:
                    return heapq.heappop(self._later)[1]
                if self._now:
                    return self._now.pop() if self._newest_first else self._now.popleft()
                self._newest_first = False
                if now >= deadline:
                    return None
                wake_at = deadline
                if self._later:
                    wake_at = min(deadline, self._later[0][0])
                self._changed.wait(wake_at - now)

    def seconds_until_next(self, longest: float) -> float:
        """Return the number of seconds until there is an entry to read, at most `longest`."""
        with self._changed:
            if self._now:
                return 0.0
            if not self._later:
                return longest
            due_at = self._later[0][0]
            return max(0.0, min(longest, due_at - time.monotonic()))

    def let_reader_catch_up(self, stopping: threading.Event) -> None:
        """Wait briefly while entries are queued: their files may be deleted at any moment."""
        end = time.monotonic() + CATCH_UP_SECONDS
        while self._now and time.monotonic() < end and not stopping.wait(0.002):
            pass

    def retry(self, entry: SpoolEntry, delay: Callable[[int], float]) -> None:
        """Queue a taken entry once more, after `delay(tries)` seconds."""
        with self._changed:
            tries = self._tries[entry.path] + 1
            self._tries[entry.path] = tries
            heapq.heappush(self._later, (time.monotonic() + delay(tries), entry))

    def read_newest_first(self) -> None:
        """Read the newest entries first, until the queue is empty.

        Called when an entry was deleted before it was read: those queued after it may be gone too.
        """
        self._newest_first = True

    def done(self, entry: SpoolEntry) -> None:
        """Forget an entry that was read or given up; it may be added again."""
        with self._changed:
            del self._tries[entry.path]

    def idle(self) -> bool:
        """Return whether only entries wait that were tried before and were incomplete."""
        with self._changed:
            return all(self._tries.values())

    def incomplete(self) -> list[Path]:
        """Return the paths of the entries that were tried and are incomplete."""
        with self._changed:
            return [path for path, tries in self._tries.items() if tries]


class WaitingJobs:
    """Jobs that were read and wait for the journal, at most MAX_BYTES or one larger job."""

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._changed = threading.Condition()
        self._jobs: deque[tuple[CapturedJob, Identity]] = deque()
        self._bytes = 0
        self._in_hand: list[tuple[CapturedJob, Identity]] = []
        self._held: dict[str, Identity] = {}
        self._closed = False

    def put(self, job: CapturedJob, identity: Identity) -> bool:
        """Add a job, and wait for room first. Returns False after `close`."""
        with self._changed:
            while (
                self._jobs and self._bytes + job.size_bytes > self._max_bytes and not self._closed
            ):
                self._changed.wait()
            if self._closed:
                return False
            self._jobs.append((job, identity))
            self._bytes += job.size_bytes
            self._held[job.job_id] = identity
            self._changed.notify_all()
            return True

    def held(self, job_id: str) -> Identity | None:
        """Return the newest entry of this job ID that was read and is not in the journal yet."""
        return self._held.get(job_id)

    def take(self, timeout: float) -> list[tuple[CapturedJob, Identity]]:
        """Return the longest waiting jobs, up to BATCH_BYTES or one larger job.

        Empty after `timeout` seconds without any. Call `written` once they are in the journal.
        """
        with self._changed:
            if not self._jobs:
                self._changed.wait(timeout)
            jobs: list[tuple[CapturedJob, Identity]] = []
            size = 0
            while self._jobs and len(jobs) < BATCH_JOBS:
                if jobs and size + self._jobs[0][0].size_bytes > BATCH_BYTES:
                    break
                jobs.append(self._jobs.popleft())
                size += jobs[-1][0].size_bytes
            self._bytes -= size
            self._in_hand = jobs
            self._changed.notify_all()
            return jobs

    def written(self) -> None:
        """Forget the taken jobs, which are in the journal now."""
        with self._changed:
            for job, identity in self._in_hand:
                if self._held.get(job.job_id) == identity:
                    del self._held[job.job_id]
            self._in_hand = []

    def close(self) -> None:
        """Add no more jobs: `put` returns False at once."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def idle(self) -> bool:
        """Return whether all jobs are in the journal."""
        with self._changed:
            return not self._jobs and not self._in_hand
