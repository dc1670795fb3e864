"""Hands the journal's batches over to the portal, in order, and reports the status of capture."""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from apps.clusters.schedulers.base import Identity
from apps.core.domain.secrets.masking import MaskPattern
from capture.journal.journal import Journal, JournaledBatch
from capture.masking_rules import KeptRules
from capture.portal import BatchRefused, BatchTooLarge, JournalOutdated, Portal
from capture.resources import HeapTrimmer
from capture.troubles import Troubles
from capture.wire.batches import Batch
from capture.wire.report import printable

logger = logging.getLogger(__name__)

FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 30.0
_IDLE_SECONDS = 0.5
_STOP_SECONDS = 5.0


class Backlog(NamedTuple):
    """Counts of the jobs in the journal that the portal lacks."""

    behind: int
    lag_seconds: float
    handed_over: int
    refused: int
    why_refused: str
    portal_error: str
    journal_bytes: int


class HandOver:
    """The journal with a thread that hands it over.

    `HandOverProcess` stands for one in another process.
    """

    def __init__(self, journal: Journal, portal: Portal, rules: KeptRules) -> None:
        self._journal = journal
        self._portal = portal
        self._rules = rules
        self._troubles = Troubles()
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._report_due = threading.Event()
        self._report_due.set()
        self._asked_for_rules = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._report: Mapping[str, Any] | None = None
        #: A batch that the portal has, and that the journal could not delete yet.
        self._received: JournaledBatch | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._handed_over = 0
        self._is_drained = False

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout=_STOP_SECONDS)

    def known(self, cluster: str) -> dict[str, Identity]:
        """Return the newest captured entry of each job ID that the last scan saw in the spool."""
        return self._journal.known(cluster)

    def add(self, batch: Batch) -> int:
        """Write the new jobs of a batch to the journal, durably; return their number.

        Raises the exceptions of `Journal.add`.
        """
        count = self._journal.add(batch)
        self._wake.set()
        return count

    def forget(self, cluster: str, job_ids: Sequence[str]) -> None:
        """Forget the spool entries of these job IDs, which are no longer in the spool."""
        self._journal.forget(cluster, job_ids)

    def backlog(self) -> Backlog:
        behind, oldest_at = self._journal.backlog()
        refused = self._journal.refused()
        lag_seconds = 0.0
        if oldest_at:
            lag_seconds = max(0.0, round((datetime.now(UTC) - oldest_at).total_seconds(), 1))
        return Backlog(
            behind=behind,
            lag_seconds=lag_seconds,
            handed_over=self._handed_over,
            refused=refused.jobs,
            why_refused=printable(refused.why),
            portal_error=printable(self._troubles),
            journal_bytes=self._journal.size_bytes(),
        )

    def send_report(self, report: Mapping[str, Any] | None) -> tuple[MaskPattern, ...]:
        """Let the thread send a report and fetch the masking rules; return the last known rules."""
        self._report = report
        self._report_due.set()
        self._wake.set()
        return self._rules.rules

    def first_rules(self, patience_seconds: float, at_once: bool) -> tuple[MaskPattern, ...]:
        """Return the masking rules in force, or the last known ones if the portal does not answer.

        Waits `patience_seconds` for the portal. With `at_once` it waits only if no rules are known.
        """
        if not (at_once and self._rules.received):
            self._asked_for_rules.wait(patience_seconds)
        return self._rules.rules

    def _run(self) -> None:
        heap = HeapTrimmer()
        while not self._stopping.is_set():
            if self._report_due.is_set():
                self._report_due.clear()
                self._troubles.guarded("report", self._report_and_fetch_rules)
                self._asked_for_rules.set()
            if not self._try_hand_over():
                self._wake.wait(_IDLE_SECONDS)
                self._wake.clear()
            heap.trim_if_due()
        self._portal.close()

    def _report_and_fetch_rules(self) -> None:
        if report := self._report:
            self._portal.report(report)
        if self._rules.keep(self._portal.masking_rules()):
            logger.info("the masking rules have changed: %d are in force", len(self._rules.rules))

    def _try_hand_over(self) -> bool:
        """Hand the next batch over, unless a failure was a moment ago.

        Returns whether there may be more to hand over now.
        """
        if time.monotonic() < self._retry_at:
            return False
        if self._troubles.guarded("hand-over", self._hand_over_next):
            self._failures = 0
            return not self._is_drained
        delay = FIRST_DELAY_SECONDS * 2.0 ** min(self._failures, 10)
        self._retry_at = time.monotonic() + min(delay, LONGEST_DELAY_SECONDS)
        self._failures += 1
        return False

    def _hand_over_next(self) -> None:
        batch = self._received or self._journal.next()
        self._is_drained = batch is None
        if batch is not None:
            self._hand_over(batch)

    def _hand_over(self, batch: JournaledBatch) -> None:
        """Send a batch to the portal, unless it has it, and delete it from the journal.

        A batch that the portal does not take is split, or marked as refused.
        """
        if batch is not self._received:
            try:
                self._portal.take(batch)
            except BatchTooLarge as error:
                if batch.jobs > 1:
                    self._journal.split(batch)
                else:
                    self._refused(batch, error)
                return
            except BatchRefused as error:
                self._refused(batch, error)
                return
            except JournalOutdated as error:
                logger.warning(
                    "the journal was restored from a copy, its batches go on under a new name: %s",
                    error,
                )
                self._journal.renew_id()
                return
            self._received = batch
        self._journal.acknowledge(batch)
        self._received = None
        self._handed_over += batch.jobs

    def _refused(self, batch: JournaledBatch, error: Exception) -> None:
        logger.error("the portal refuses %d jobs, which stay in the journal: %s", batch.jobs, error)
        self._journal.refuse(batch, str(error))
