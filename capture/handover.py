"""Hands the journal's batches over to the portal, in order, and reports the status of capture."""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from apps.clusters.schedulers.base import Identity
from apps.core.domain.secrets.masking import Rule
from capture.journal.journal import Journal, JournaledBatch
from capture.masking_rules import KeptRules
from capture.portal import BatchRefused, BatchTooLarge, JournalOutdated, Portal
from capture.resources import Tidying
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
        self._due = threading.Event()
        self._due.set()
        self._asked = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._report: Mapping[str, Any] | None = None
        self._taken: JournaledBatch | None = (
            None  # by the portal; the journal could not note it yet
        )
        self._failures = 0
        self._next_at = 0.0
        self._handed_over = 0
        self._drained = False

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
        """Write the jobs that are new, durably, as one.

        Returns how many were. Raises what the journal does.
        """
        count = self._journal.add(batch)
        self._wake.set()
        return count

    def forget(self, cluster: str, job_ids: Sequence[str]) -> None:
        """Drop what is known of spool entries that are gone from the spool."""
        self._journal.forget(cluster, job_ids)

    def backlog(self) -> Backlog:
        behind, oldest_at = self._journal.backlog()
        refused = self._journal.refused()
        return Backlog(
            behind=behind,
            lag_seconds=max(0.0, round((datetime.now(UTC) - oldest_at).total_seconds(), 1))
            if oldest_at
            else 0.0,
            handed_over=self._handed_over,
            refused=refused.jobs,
            why_refused=printable(refused.why),
            portal_error=printable(self._troubles),
            journal_bytes=self._journal.size_bytes(),
        )

    def beat(self, report: Mapping[str, Any] | None) -> tuple[Rule, ...]:
        """Have a report sent, and the masking rules fetched; return those last received."""
        self._report = report
        self._due.set()
        self._wake.set()
        return self._rules.rules

    def first_rules(self, patience_seconds: float, at_once: bool) -> tuple[Rule, ...]:
        """Return the masking rules in force, or the last known ones if the portal does not answer.

        With `at_once`, the last known ones suffice; the answer is awaited only if there are none.
        """
        if not (at_once and self._rules.received):
            self._asked.wait(patience_seconds)
        return self._rules.rules

    def _run(self) -> None:
        tidying = Tidying()
        while not self._stopping.is_set():
            if self._due.is_set():
                self._due.clear()
                self._troubles.guarded("report", self._exchange)
                self._asked.set()
            if not self._moved():
                self._wake.wait(_IDLE_SECONDS)
                self._wake.clear()
            tidying.tidy()
        self._portal.close()

    def _exchange(self) -> None:
        if report := self._report:
            self._portal.report(report)
        if self._rules.keep(self._portal.masking_rules()):
            logger.info("the masking rules have changed: %d are in force", len(self._rules.rules))

    def _moved(self) -> bool:
        """Hand the next batch over, unless the portal is to be left in peace.

        Returns whether there may be more.
        """
        if time.monotonic() < self._next_at:
            return False
        self._drained = False
        if self._troubles.guarded("hand-over", self._hand_over):
            self._failures = 0
            return not self._drained
        self._next_at = time.monotonic() + min(
            FIRST_DELAY_SECONDS * 2.0 ** min(self._failures, 10), LONGEST_DELAY_SECONDS
        )
        self._failures += 1
        return False

    def _hand_over(self) -> None:
        batch = self._taken or self._journal.next()
        if batch is None:
            self._drained = True
            return
        if not self._taken:
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
            self._taken = batch
        self._journal.acknowledge(batch)
        self._taken = None
        self._handed_over += batch.jobs

    def _refused(self, batch: JournaledBatch, error: Exception) -> None:
        logger.error("the portal refuses %d jobs, which stay in the journal: %s", batch.jobs, error)
        self._journal.refuse(batch, str(error))
