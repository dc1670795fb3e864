"""Capture in the process of a test."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from apps.core.domain.secrets.masking import Masker
from capture.capture import Capture
from capture.handover import HandOver
from capture.journal.journal import JournaledBatch
from capture.masking_rules import KeptRules
from capture.portal import BatchRefused, BatchTooLarge, JournalOutdated, PortalAway
from capture.wire.batches import unpack
from capture.wire.entry import CapturedJob


class MemoryPortal:
    """Keeps batches by their numbers, unless it is told to be away,
    to refuse some jobs or to take only a few.
    """

    def __init__(self) -> None:
        self.jobs: list[CapturedJob] = []
        self.reports = []
        self.rules = []
        self.last: dict[str, int] = {}
        self.away = False
        self.refuses: set[str] = set()
        self.most_jobs = 1000

    def take(self, batch: JournaledBatch) -> None:
        jobs = unpack([batch.content])
        self._answer()
        if len(jobs) > self.most_jobs:
            raise BatchTooLarge(f"no more than {self.most_jobs}")
        if self.refuses & {job.job_id for job in jobs}:
            raise BatchRefused("not this one")
        assert batch.jobs == len(jobs)
        if batch.last < self.last.get(batch.journal, 0):
            raise JournalOutdated(f"up to {self.last}")
        if batch.last != self.last.get(batch.journal):
            self.jobs += jobs
            self.last[batch.journal] = batch.last

    def report(self, detail) -> None:
        self._answer()
        self.reports.append(detail)

    def masking_rules(self):
        self._answer()
        return self.rules

    def close(self) -> None:
        """Nothing is open."""

    def _answer(self) -> None:
        if self.away:
            raise PortalAway("connection refused")

    @property
    def ids(self) -> list[int]:
        return sorted(int(job.job_id) for job in self.jobs)


def make_masker(rules):
    return Masker(names="(?i)token", key=b"key", rules=rules)


def capture_of(spool, journal, portal, /, **changes) -> Capture:
    """Return what captures a spool of Slurm, unless told otherwise,
    and masks what is called a token.
    """
    values = {
        "cluster": "alps",
        "scheduler": "slurm",
        "spool": spool,
        "hand_over": HandOver(journal, portal, KeptRules(journal.directory)),
        "make_masker": make_masker,
        "clock": lambda: datetime.now(UTC),
    }
    return Capture(**values | changes)


@contextmanager
def handing_over(journal, portal):
    """Carry jobs from the journal to the portal until the end of the block."""
    hand_over = HandOver(journal, portal, KeptRules(journal.directory))
    hand_over.start()
    try:
        yield hand_over
    finally:
        hand_over.stop()


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
