"""Takes captured jobs into the journal, and delivers them to the sinks: a drain in its own thread for each."""

import os
import signal
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from apps.archive.capture.delivery.drain import Drain
from apps.archive.capture.delivery.isolation import IsolatedSink, Nursery, fork_process
from apps.archive.capture.journal.journal import Journal, JournalError
from apps.archive.sinks.base import Writer
from apps.archive.wire.batches import Batch
from apps.archive.wire.report import MOST_NAMED, SinkReport, printable
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


class KeeperProcess:
    """Stands for a `Keeper` in another process, which ends with this one, whatever this one ends of."""

    def __init__(self, directory: Path, nursery: Nursery) -> None:
        """To be made before any thread is started. Raises `JournalError` where the journal cannot be used."""
        self._asking = threading.Lock()
        self._here, there = Pipe()
        with there:
            self._pid = fork_process(
                lambda: _keep(there, nursery.sinks, directory),
                keep=[there.fileno(), nursery.fileno()],
            )
        try:
            self._answer()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._here.close()
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)

    def start(self) -> None:
        self._ask("start")

    def stop(self) -> None:
        with suppress(KeeperDied):
            self._ask("stop")

    def known(self, cluster: str) -> dict[str, Identity]:
        return self._ask("known", cluster)  # type: ignore[no-any-return]

    def add(self, batch: Batch) -> int:
        return self._ask("add", batch)  # type: ignore[no-any-return]

    def forget(self, cluster: str, job_ids: Sequence[str]) -> None:
        self._ask("forget", cluster, job_ids)

    def progress(self) -> tuple[int, int]:
        return self._ask("progress")  # type: ignore[no-any-return]

    def reports(self) -> dict[str, SinkReport]:
        return self._ask("reports")  # type: ignore[no-any-return]

    def retry_refused(self) -> None:
        os.kill(self._pid, RETRY_SIGNAL)

    def _ask(self, what: str, *arguments: Any) -> Any:
        with self._asking:
            try:
                self._here.send((what, arguments))
            except OSError as error:
                raise KeeperDied("the process of the journal has died") from error
            return self._answer()

    def _answer(self) -> Any:
        try:
            answer = self._here.recv()
        except (OSError, EOFError) as error:
            raise KeeperDied("the process of the journal has died") from error
        if isinstance(answer, Exception):
            raise answer
        return answer


def _keep(requests: Connection, sinks: Sequence[IsolatedSink], directory: Path) -> None:
    """Keep what comes until capture has gone."""
    try:
        journal = Journal(directory, sinks=[sink.name for sink in sinks])
    except JournalError as error:
        requests.send(error)
        return
    keeper = Keeper(journal, sinks)
    signal.signal(RETRY_SIGNAL, lambda *_: keeper.retry_refused())
    requests.send(None)
    with closing(journal), suppress(EOFError, OSError):  # a drain may still wait for its sink: it ends with the process
        while True:
            what, arguments = requests.recv()
            try:
                answer = getattr(keeper, what)(*arguments)
            except Exception as error:  # the other side tells of it
                answer = error if isinstance(error, OSError) else JournalError(str(error) or repr(error))
            del arguments
            requests.send(answer)
