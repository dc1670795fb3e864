"""The capture loop: scan the spool, read entries on file events, hand jobs on; each in its own thread.

A kill loses nothing: what is not in the journal is still in the spool, and the next start scans it.
"""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from apps.archive.capture.delivery.keeper import Keeper, KeeperDied, KeeperProcess
from apps.archive.capture.queues import WaitingEntries, WaitingJobs
from apps.archive.capture.resources import Tidying
from apps.archive.capture.spool_reader import Reader
from apps.archive.capture.watch.base import Watch
from apps.archive.capture.watch.watcher import Watcher
from apps.archive.wire.batches import Batch
from apps.archive.wire.entry import CapturedJob, Clock
from apps.archive.wire.report import CaptureReport, printable
from apps.clusters.schedulers.base import Identity, Spool, SpoolError
from apps.core.domain.masking import Masker

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 20.0
_RETRY_SECONDS = 1.0
_SCANNED_AT_ONCE = 100
_GATHER_SECONDS = 0.03  # few large batches leave more time to read than many small ones


class Capture:
    """Captures one spool and hands its jobs to `keeper`."""

    def __init__(
        self,
        *,
        cluster: str,
        scheduler: str,
        spool: Spool,
        keeper: Keeper | KeeperProcess,
        masker: Masker,
        clock: Clock,
        watch: Watch = Watch.AUTO,
    ) -> None:
        self._cluster = cluster
        self._spool = spool
        self._watch = watch
        self._keeper = keeper
        self._known: dict[str, Identity] = keeper.known(cluster)
        self._waiting = WaitingEntries()
        self._jobs = WaitingJobs()
        self.reader = Reader(
            cluster=cluster,
            scheduler=scheduler,
            spool=spool,
            masker=masker,
            waiting=self._waiting,
            jobs=self._jobs,
            last_read=self._last_read,
            clock=clock,
        )
        self._threads: list[threading.Thread] = []
        self._stopping = threading.Event()
        self._look_again = threading.Event()
        self._errors: dict[str, str] = {}
        self._died: KeeperDied | None = None
        self.captured = 0

    def run(self, *, rescan_seconds: float) -> None:
        """Capture until `stop` is called."""
        watcher = Watcher(spool=self._spool, waiting=self._waiting, rescan=self._look_again.set, watch=self._watch)
        self._start(watcher)
        while not self._stopping.is_set():
            self._look_again.clear()
            self._guarded("watch", watcher.refresh)
            self._guarded("scan", self.scan)
            self._guarded("keeper", self._keeper.progress)
            self._look_again.wait(_RETRY_SECONDS if self._waiting.overflowed else rescan_seconds)
        self._finish()
        watcher.close()

    def run_once(self, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        """Capture what is in the spool now and deliver it; give up after `patience_seconds` without progress."""
        self._start()
        self._look_again.set()
        moved_at, before = time.monotonic(), (-1, -1, -1)
        while not self._stopping.is_set() and time.monotonic() - moved_at < patience_seconds:
            if self._look_again.is_set() or self._waiting.overflowed:
                self._look_again.clear()
                self._guarded("scan", self.scan)
            nothing_to_read = not self._waiting.overflowed and len(self._waiting) == 0 and self._jobs.idle()
            lacking, written = self._keeper.progress()
            if nothing_to_read and lacking == 0:
                break
            now = (len(self._waiting), self.captured, written)
            if now != before:
                moved_at, before = time.monotonic(), now
            time.sleep(0.02)
        self._finish()

    def stop(self) -> None:
        """Let `run` or `run_once` end. May be called from a signal handler."""
        self._stopping.set()
        self._look_again.set()

    def retry_refused(self) -> None:
        """Try again what sinks have refused. May be called from a signal handler."""
        self._keeper.retry_refused()

    def scan(self) -> None:
        """Queue every spool entry that is not known to be captured."""
        self._waiting.overflowed = False
        before = set(self._known)
        for number, entry in enumerate(self._spool.scan(), start=1):
            if number % _SCANNED_AT_ONCE == 0:
                self._waiting.ease(self._stopping)
            identity = self._spool.identity(entry)
            if not identity.inode:  # gone since it was listed
                continue
            before.discard(entry.job_id)
            if self._last_read(entry.job_id) != identity:
                self._waiting.add(entry)
        for job_id in before:
            self._known.pop(job_id, None)
        if before:
            self._keeper.forget(self._cluster, [*before])
        self.reader.forget_unreadable()

    def report(self) -> CaptureReport:
        """Return the state of capture and of each sink, from memory and the journal."""
        unreadable = {printable(path): printable(why) for path, why in self.reader.unreadable().items()}
        return CaptureReport(
            captured=self.captured,
            waiting=len(self._waiting),
            last_error=printable("; ".join(self._errors.values())),
            unreadable_count=len(unreadable),
            unreadable=unreadable,
            incomplete=[printable(path) for path in self._waiting.incomplete()],
            sinks=self._keeper.reports(),
        )

    def _last_read(self, job_id: str) -> Identity | None:
        return self._jobs.held(job_id) or self._known.get(job_id)

    def _start(self, watcher: Watcher | None = None) -> None:
        self._keeper.start()
        loops = [partial(self.reader.run, self._stopping, watcher), partial(self._write, self._stopping)]
        self._threads = [threading.Thread(target=loop, daemon=True) for loop in loops]
        for thread in self._threads:
            thread.start()

    def _finish(self) -> None:
        self.stop()
        self._jobs.close()
        for thread in self._threads:
            thread.join(timeout=5)
        self._keeper.stop()
        if self._died:
            raise self._died

    def _write(self, stopping: threading.Event) -> None:
        tidying = Tidying()
        while not (stopping.is_set() and self._jobs.idle()):
            self._stopping.wait(_GATHER_SECONDS)
            batch = self._jobs.take(timeout=0.2)
            while batch and not self._guarded("journal", partial(self._commit, batch)):
                if stopping.wait(_RETRY_SECONDS):
                    return
            self._jobs.written()
            del batch
            tidying.tidy()

    def _commit(self, batch: list[tuple[CapturedJob, Identity]]) -> None:
        self.captured += self._keeper.add(Batch.of(batch))
        self._known.update((job.job_id, identity) for job, identity in batch)

    def _guarded(self, part: str, step: Callable[[], object]) -> bool:
        """Run `step`; log a failure once for each reason, and go on. Returns whether it succeeded."""
        try:
            step()
        except KeeperDied as error:  # nothing is lost: what it did not write is in the spool
            self._died = error
            self.stop()
            return False
        except Exception as error:
            reason = str(error) or repr(error)
            if self._errors.get(part) != reason:
                logger.log(
                    logging.WARNING, "%s: %s", part, reason, exc_info=not isinstance(error, (OSError, SpoolError))
                )
            self._errors[part] = reason
            return False
        self._errors.pop(part, None)
        return True
