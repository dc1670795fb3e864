"""The keeper in a process of its own: what reads the spool shares no interpreter with what writes the journal.

The process knows nothing of Django and is small: `python -m apps.archive.capture.keeper_process`.
"""

import gc
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from apps.archive.capture.isolation import Nursery, isolated_sinks
from apps.archive.capture.journal import Journal, JournalError
from apps.archive.capture.keeping import RETRY_SIGNAL, Keeper, KeeperDied, SinkStatus
from apps.archive.capture.packing import Batch
from apps.archive.capture.resources import SWITCH_SECONDS, give_memory_back
from apps.clusters.schedulers.base import Identity

_ROOT = Path(__file__).parents[3]


class KeeperProcess:
    """Stands for a `Keeper` in another process, which ends with this one, whatever this one ends of."""

    def __init__(self, directory: Path, nursery: Nursery, *, log_format: str = logging.BASIC_FORMAT) -> None:
        """Raises `JournalError` where the journal cannot be used."""
        self._asking = threading.Lock()
        self._here, there = Pipe()
        told = {
            "requests": there.fileno(),
            "nursery": nursery.fileno(),
            "sinks": nursery.names,
            "directory": str(directory.absolute()),
            "log": {"format": log_format, "level": logging.getLogger().getEffectiveLevel()},
        }
        with there:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, json.dumps(told)],
                cwd=_ROOT,
                pass_fds=(there.fileno(), nursery.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        try:
            self._answer()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let it end: what was added is in the journal."""
        self._here.close()
        self._process.wait()

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

    def statuses(self) -> tuple[SinkStatus, ...]:
        return self._ask("statuses")  # type: ignore[no-any-return]

    def retry_refused(self) -> None:
        self._process.send_signal(RETRY_SIGNAL)

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


def _keep(requests: Connection, nursery: socket.socket, sinks: Sequence[str], directory: Path) -> None:
    try:
        journal = Journal(directory, sinks=sinks)
    except JournalError as error:
        requests.send(error)
        return
    keeper = Keeper(journal, isolated_sinks(sinks, nursery))
    signal.signal(RETRY_SIGNAL, lambda *_: keeper.retry_refused())
    requests.send(None)
    with closing(journal), suppress(EOFError, OSError):
        while True:
            what, arguments = requests.recv()
            try:
                answer = getattr(keeper, what)(*arguments)
            except Exception as error:  # the other side tells of it
                answer = error if isinstance(error, OSError) else JournalError(str(error) or repr(error))
            del arguments
            requests.send(answer)


def _main(told: dict[str, Any]) -> None:
    """Keep what comes until capture has gone. It is capture that says when to end: signals are to its whole group."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(**told["log"])
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(50_000)  # what passes through is many small objects without cycles
    give_memory_back()
    nursery = socket.socket(fileno=told["nursery"])
    try:
        _keep(Connection(told["requests"]), nursery, told["sinks"], Path(told["directory"]))
    finally:
        logging.shutdown()
        os._exit(0)  # a drain may still wait for its sink


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
