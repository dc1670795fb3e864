"""Workers that bring what was handed over to one sink, in a thread of a test."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, suppress
from uuid import uuid4

from django.db import connection
from django.db.models import Sum

from apps.archive import delivery
from apps.archive.domain.intake import accept_batch
from apps.archive.models import IntakeBatch, RefusedJob, SinkState
from apps.archive.sinks.base import SinkRefused, SinkUnavailable
from apps.archive.tasks import archive_batches
from capture.wire.batches import pack, unpack
from capture.wire.entry import CapturedJob


class MemorySink:
    """Keeps jobs, unless it is told to be away or to refuse batches with some of them."""

    name = "store"

    def __init__(self) -> None:
        self.jobs: list[CapturedJob] = []
        self.away = False
        self.refuses: set[str] = set()

    def write(self, jobs: Sequence[CapturedJob]) -> Mapping[int, str]:
        if self.away:
            raise SinkUnavailable("connection refused")
        if self.refuses & {job.job_id for job in jobs}:
            raise SinkRefused("not this one")
        self.jobs += jobs
        return {}

    def close(self) -> None:
        """Nothing is open."""

    @property
    def ids(self) -> list[int]:
        return sorted(int(job.job_id) for job in self.jobs)


class Delivering:
    """What a sink, the only one, has and lacks."""

    def __init__(self) -> None:
        self._journal = uuid4()
        self._sequence = 0

    def add(self, jobs) -> None:
        """Hand them over, 500 at a time."""
        for start in range(0, len(jobs), 500):
            batch = jobs[start : start + 500]
            self._sequence += len(batch)
            accept_batch(
                cluster="alps",
                host="here",
                journal=self._journal,
                sequence=self._sequence,
                jobs=len(batch),
                size_bytes=sum(job.size_bytes for job in batch),
                captured_at=batch[0].captured_at,
                data=pack(batch),
            )

    @property
    def behind(self) -> int:
        return IntakeBatch.objects.aggregate(jobs=Sum("jobs", default=0))["jobs"]

    @property
    def written(self) -> int:
        return SinkState.objects.aggregate(jobs=Sum("written", default=0))["jobs"]

    @property
    def last_error(self) -> str:
        return "".join(SinkState.objects.values_list("last_error", flat=True))

    def refused(self):
        """Return each job with the reason."""
        return [
            (unpack([bytes(row.data)])[0], row.reason) for row in RefusedJob.objects.order_by("pk")
        ]


@contextmanager
def delivering(settings, url, jobs=()):
    """Deliver these jobs, and what is handed over later, until the end of the block."""
    settings.ARCHIVE_SINKS = [url]
    SinkState.objects.update(retry_at=None)
    stopping = threading.Event()

    def work():
        while not stopping.wait(0.05):
            with suppress(Exception):  # the database, say: as a worker, it goes on
                archive_batches()
        delivery.close_sinks()
        connection.close()

    sink = Delivering()
    sink.add(jobs)
    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield sink
    finally:
        stopping.set()
        worker.join(60)
    assert not worker.is_alive()
