"""The process of the journal and the hand-over, which uses another core than the reader."""

import gc
import logging
import os
import signal
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from apps.clusters.schedulers.base import Identity
from apps.core.domain.secrets.masking import MaskPattern
from capture.handover import Backlog, HandOver
from capture.journal.journal import Journal, JournalError
from capture.masking_rules import KeptRules
from capture.portal import Portal
from capture.resources import restore_priority
from capture.wire.batches import Batch

logger = logging.getLogger(__name__)


class JournalDied(Exception):
    """The process of the journal has died: capture must be restarted."""


class HandOverProcess:
    """A `HandOver` in a child process, which ends whenever this process does."""

    def __init__(self, directory: Path, portal: Portal) -> None:
        """Fork the child process. No thread may have been started; only the child uses `portal`.

        Raises `JournalError` if the journal, or the masking rules beside it, cannot be used.
        """
        self._calling = threading.Lock()
        self._here, there = Pipe()
        with there:
            self._pid = _fork(lambda: _serve(there, directory, portal), keep=there.fileno())
        try:
            self._receive()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._here.close()
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)

    def start(self) -> None:
        self._call("start")

    def stop(self) -> None:
        with suppress(JournalDied):
            self._call("stop")

    def known(self, cluster: str) -> dict[str, Identity]:
        return self._call("known", cluster)  # type: ignore[no-any-return]

    def add(self, batch: Batch) -> int:
        return self._call("add", batch)  # type: ignore[no-any-return]

    def forget(self, cluster: str, job_ids: Sequence[str]) -> None:
        self._call("forget", cluster, job_ids)

    def backlog(self) -> Backlog:
        return self._call("backlog")  # type: ignore[no-any-return]

    def send_report(self, report: Mapping[str, Any] | None) -> tuple[MaskPattern, ...]:
        return self._call("send_report", report)  # type: ignore[no-any-return]

    def first_rules(self, patience_seconds: float, at_once: bool) -> tuple[MaskPattern, ...]:
        return self._call("first_rules", patience_seconds, at_once)  # type: ignore[no-any-return]

    def _call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the `HandOver` in the child process.

        Raises its `OSError`, `JournalError` for its other exceptions, and `JournalDied`.
        """
        with self._calling:
            try:
                self._here.send((method, arguments))
            except OSError as error:
                raise JournalDied("the process of the journal has died") from error
            return self._receive()

    def _receive(self) -> Any:
        try:
            answer = self._here.recv()
        except (OSError, EOFError) as error:
            raise JournalDied("the process of the journal has died") from error
        if isinstance(answer, Exception):
            raise answer
        return answer


def _serve(requests: Connection, directory: Path, portal: Portal) -> None:
    """Handle the calls of a `HandOverProcess` until its process ends."""
    try:
        journal = Journal(directory)
        hand_over = HandOver(journal, portal, KeptRules(directory))
    except (JournalError, OSError, ValueError) as error:
        requests.send(JournalError(str(error)))
        return
    # A thread may still wait for the portal; it ends with this process.
    with closing(journal), suppress(EOFError, OSError):
        requests.send(None)
        while True:
            method, arguments = requests.recv()
            try:
                answer = getattr(hand_over, method)(*arguments)
            except OSError as error:  # the caller raises the answer if it is an exception
                answer = error
            except Exception as error:
                answer = JournalError(str(error) or repr(error))
            del arguments  # a batch is large
            requests.send(answer)


def _fork(work: Callable[[], object], *, keep: int) -> int:
    """Do `work` in a new process, and return its ID.

    Of the open files it inherits only `keep` and the standard ones. It ignores SIGINT and SIGTERM,
    which Ctrl-C and service managers send to both processes: it ends when capture closes the
    connection, so that jobs that were read are still written.
    """
    gc.freeze()  # both processes share the memory of the objects that exist now
    with warnings.catch_warnings():
        # Python 3.12 warns in tests that have threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        restore_priority()
        os.closerange(3, keep)
        os.closerange(keep + 1, os.sysconf("SC_OPEN_MAX"))
        work()
    except BaseException:
        logger.exception("the process of the journal failed")
    finally:
        # Skip the exit handlers and `finally` blocks of the parent.
        logging.shutdown()
        os._exit(0)
