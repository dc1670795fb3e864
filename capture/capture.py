"""The capture loop: scan the spool, read entries on file events, pass jobs on.

Each step has its own thread. A kill loses nothing: what is not in the journal is still in the
spool, and the next start scans it.
"""

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from apps.clusters.schedulers.base import Identity, Spool
from apps.core.domain.secrets.masking import Masker, MaskPattern
from capture.configuration import PATIENCE_SECONDS
from capture.handover import HandOver
from capture.process import HandOverProcess, JournalDied
from capture.queues import WaitingEntries, WaitingJobs
from capture.resources import HeapTrimmer
from capture.spool_reader import Reader
from capture.troubles import Troubles
from capture.watch.base import Watch
from capture.watch.watcher import Watcher
from capture.wire.batches import Batch
from capture.wire.entry import CapturedJob, Clock
from capture.wire.report import CaptureReport, printable

_RETRY_SECONDS = 1.0
_SCANNED_AT_ONCE = 100
_RULES_SECONDS = 2.0
# A report fetches the masking rules too: a new one is in force after two of them at most.
_REPORT_SECONDS = 5.0
# Few large batches leave the reader more time than many small ones.
_GATHER_SECONDS = 0.03


class _Progress(NamedTuple):
    """How far a capture that ends when the spool is empty has come."""

    waiting: int
    captured: int
    handed_over: int


class Capture:
    """Captures one spool into a journal, which `hand_over` carries to the portal."""

    def __init__(
        self,
        *,
        cluster: str,
        scheduler: str,
        spool: Spool,
        hand_over: HandOver | HandOverProcess,
        make_masker: Callable[[Sequence[MaskPattern]], Masker],
        clock: Clock,
        watch: Watch = Watch.AUTO,
    ) -> None:
        self._cluster = cluster
        self._spool = spool
        self._watch = watch
        self._make_masker = make_masker
        self._rules: Sequence[MaskPattern] = ()
        self._hand_over = hand_over
        self._known: dict[str, Identity] = hand_over.known(cluster)
        self._waiting = WaitingEntries()
        self._jobs = WaitingJobs()
        self.reader = Reader(
            cluster=cluster,
            scheduler=scheduler,
            spool=spool,
            masker=make_masker(()),  # until the rules are known
            waiting=self._waiting,
            jobs=self._jobs,
            last_read=self._last_read,
            clock=clock,
        )
        self._threads: list[threading.Thread] = []
        self._stopping = threading.Event()
        self._scan_requested = threading.Event()
        self._troubles = Troubles(fatal=(JournalDied,))
        self._died: JournalDied | None = None
        self.captured = 0

    def run(self, *, rescan_seconds: float) -> None:
        """Capture until `stop` is called."""
        watcher = Watcher(
            spool=self._spool,
            waiting=self._waiting,
            rescan=self._scan_requested.set,
            watch=self._watch,
        )
        self._guarded("watch", watcher.refresh)
        self._start(watcher)
        while not self._stopping.is_set():
            self._scan_requested.clear()
            self._guarded("watch", watcher.refresh)
            self._guarded("scan", self.scan)
            self._guarded("journal", self._hand_over.backlog)
            self._scan_requested.wait(
                _RETRY_SECONDS if self._waiting.overflowed else rescan_seconds
            )
        self._finish()
        watcher.close()

    def run_once(self, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        """Capture what is in the spool now and hand it over.

        Give up after `patience_seconds` without progress.
        """
        self._start()
        self._scan_requested.set()
        progressed_at = time.monotonic()
        progress: _Progress | None = None
        while not self._stopping.is_set() and time.monotonic() - progressed_at < patience_seconds:
            if self._scan_requested.is_set() or self._waiting.overflowed:
                self._scan_requested.clear()
                self._guarded("scan", self.scan)
            has_entries = self._waiting.overflowed or len(self._waiting) > 0
            backlog = self._hand_over.backlog()
            if not has_entries and self._jobs.idle() and backlog.behind == 0:
                break

            previous_progress = progress
            progress = _Progress(len(self._waiting), self.captured, backlog.handed_over)
            if progress != previous_progress:
                progressed_at = time.monotonic()
            time.sleep(0.05)
        self._finish()

    def stop(self) -> None:
        """Let `run` or `run_once` end. May be called from a signal handler."""
        self._stopping.set()
        self._scan_requested.set()

    def scan(self) -> None:
        """Queue every spool entry that is not known to be captured."""
        self._waiting.overflowed = False
        gone = set(self._known)
        for number, entry in enumerate(self._spool.scan(), start=1):
            if number % _SCANNED_AT_ONCE == 0:
                self._waiting.let_reader_catch_up(self._stopping)
            identity = self._spool.identity(entry)
            if not identity.inode:  # deleted since it was listed
                continue
            gone.discard(entry.job_id)
            if self._last_read(entry.job_id) != identity:
                self._waiting.add(entry)

        for job_id in gone:
            self._known.pop(job_id, None)
        if gone:
            self._hand_over.forget(self._cluster, [*gone])
        self.reader.forget_unreadable()

    def report(self) -> CaptureReport:
        """Return the state of capture and of its journal."""
        unreadable = {
            printable(path): printable(why) for path, why in self.reader.unreadable().items()
        }
        return CaptureReport(
            captured=self.captured,
            missed=self.reader.missed,
            waiting=len(self._waiting),
            last_error=printable(self._troubles),
            unreadable_count=len(unreadable),
            unreadable=unreadable,
            masking_key_id=self.reader.masker.key_id,
            incomplete=[printable(path) for path in self._waiting.incomplete()],
            **self._hand_over.backlog()._asdict(),
        )

    def _last_read(self, job_id: str) -> Identity | None:
        """Return the entry that was last read for this job ID, journaled or not yet."""
        return self._jobs.held(job_id) or self._known.get(job_id)

    def _start(self, watcher: Watcher | None = None) -> None:
        self._hand_over.start()
        self._use_rules(self._hand_over.first_rules(_RULES_SECONDS, watcher is not None))
        loops: tuple[Callable[[], None], ...] = (
            partial(self.reader.run, self._stopping, watcher),
            self._write,
            self._report_regularly,
        )
        self._threads = [threading.Thread(target=loop, daemon=True) for loop in loops]
        for thread in self._threads:
            thread.start()

    def _finish(self) -> None:
        self.stop()
        self._jobs.close()
        for thread in self._threads:
            thread.join(timeout=5)
        self._hand_over.stop()
        if self._died:
            raise self._died

    def _report_regularly(self) -> None:
        """Report, and use the newest masking rules, every `_REPORT_SECONDS`."""
        while not self._stopping.is_set():
            self._guarded("report", self._report_and_fetch_rules)
            self._stopping.wait(_REPORT_SECONDS)

    def _report_and_fetch_rules(self) -> None:
        report = None
        try:
            report = self.report().as_detail()
        finally:
            # New rules apply also while the journal cannot be read, and so nothing be reported.
            self._use_rules(self._hand_over.send_report(report))

    def _use_rules(self, rules: Sequence[MaskPattern]) -> None:
        if rules != self._rules:
            self._rules = rules
            self.reader.masker = self._make_masker(rules)

    def _write(self) -> None:
        """Write the jobs that were read to the journal, until capture stops and none is left."""
        heap = HeapTrimmer()
        while not (self._stopping.is_set() and self._jobs.idle()):
            self._stopping.wait(_GATHER_SECONDS)
            batch = self._jobs.take(timeout=0.2)
            while batch and not self._guarded("journal", partial(self._commit, batch)):
                if self._stopping.wait(_RETRY_SECONDS):
                    return
            self._jobs.written()
            del batch
            heap.trim_if_due()

    def _commit(self, batch: list[tuple[CapturedJob, Identity]]) -> None:
        self.captured += self._hand_over.add(Batch.of(batch))
        self._known.update((job.job_id, identity) for job, identity in batch)

    def _guarded(self, part: str, step: Callable[[], object]) -> bool:
        """Try `step`; return whether it succeeded."""
        try:
            return self._troubles.guarded(part, step)
        except JournalDied as error:
            # Nothing is lost: jobs that are not in the journal are still in the spool.
            self._died = error
            self.stop()
            return False
