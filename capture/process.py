"""The process of the journal and the hand-over: it uses another core than the reader."""

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
from apps.core.domain.secrets.masking import Rule
from capture.handover import Backlog, HandOver
from capture.journal.journal import Journal, JournalError
from capture.masking_rules import KeptRules
from capture.portal import Portal
from capture.resources import go_as_others
from capture.wire.batches import Batch

logger = logging.getLogger(__name__)


class JournalDied(Exception):
    """The process of the journal has died: capture must be restarted."""


class HandOverProcess:
    """A `HandOver` in another process, which ends with this one, however this one ends."""

    def __init__(self, directory: Path, portal: Portal) -> None:
        """To be made before any thread is started; `portal` is used in the other process.

        Raises `JournalError` where the journal, or the masking rules beside it, cannot be used.
        """
        self._asking = threading.Lock()
        self._here, there = Pipe()
        with there:
            self._pid = _fork(lambda: _serve(there, directory, portal), keep=there.fileno())
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
        with suppress(JournalDied):
            self._ask("stop")

    def known(self, cluster: str) -> dict[str, Identity]:
        return self._ask("known", cluster)  # type: ignore[no-any-return]

    def add(self, batch: Batch) -> int:
        return self._ask("add", batch)  # type: ignore[no-any-return]

    def forget(self, cluster: str, job_ids: Sequence[str]) -> None:
        self._ask("forget", cluster, job_ids)

    def backlog(self) -> Backlog:
        return self._ask("backlog")  # type: ignore[no-any-return]

    def beat(self, report: Mapping[str, Any] | None) -> tuple[Rule, ...]:
        return self._ask("beat", report)  # type: ignore[no-any-return]

    def first_rules(self, patience_seconds: float, at_once: bool) -> tuple[Rule, ...]:
        return self._ask("first_rules", patience_seconds, at_once)  # type: ignore[no-any-return]

    def _ask(self, what: str, *arguments: Any) -> Any:
        with self._asking:
            try:
                self._here.send((what, arguments))
            except OSError as error:
                raise JournalDied("the process of the journal has died") from error
            return self._answer()

    def _answer(self) -> Any:
        try:
            answer = self._here.recv()
        except (OSError, EOFError) as error:
            raise JournalDied("the process of the journal has died") from error
        if isinstance(answer, Exception):
            raise answer
        return answer


def _serve(requests: Connection, directory: Path, portal: Portal) -> None:
    """Answer requests until capture has ended."""
    try:
        journal = Journal(directory)
        hand_over = HandOver(journal, portal, KeptRules(directory))
    except (JournalError, OSError, ValueError) as error:
        requests.send(JournalError(str(error)))
        return
    # The portal may still be waited for: that ends with the process.
    with closing(journal), suppress(EOFError, OSError):
        requests.send(None)
        while True:
            what, arguments = requests.recv()
            try:
                answer = getattr(hand_over, what)(*arguments)
            except Exception as error:  # the caller raises it
                answer = (
                    error if isinstance(error, OSError) else JournalError(str(error) or repr(error))
                )
            del arguments
            requests.send(answer)


def _fork(work: Callable[[], object], *, keep: int) -> int:
    """Do `work` in a new process, which has this file alone beside the first three; return its id.

    It is left to capture to say when to end: Ctrl-C and service managers tell the whole group, and
    what capture has read is written before all end.
    """
    gc.freeze()  # what is there now stays, and is shared
    with warnings.catch_warnings():
        # Python 3.12 warns where a test has threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        go_as_others()
        os.closerange(3, keep)
        os.closerange(keep + 1, os.sysconf("SC_OPEN_MAX"))
        work()
    except BaseException:
        logger.exception("the process of the journal failed")
    finally:  # nothing of what was meant for the process it was forked from
        logging.shutdown()
        os._exit(0)
