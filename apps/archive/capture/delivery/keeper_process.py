"""The keeper in a process of its own: what reads the spool shares no interpreter with what writes the journal."""

import os
import signal
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from apps.archive.capture.delivery.isolation import IsolatedSink, Nursery, fork_process
from apps.archive.capture.delivery.keeper import RETRY_SIGNAL, Keeper, KeeperDied
from apps.archive.capture.journal.journal import Journal, JournalError
from apps.archive.handover.batches import Batch
from apps.archive.handover.report import SinkReport
from apps.clusters.schedulers.base import Identity


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
