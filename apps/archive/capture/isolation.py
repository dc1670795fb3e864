"""Each sink in a process of its own: it takes another core than the reader, and a client library that crashes takes
nothing else down. A nursery, forked before there are threads, forks them, at the start and whenever one has died.
"""

import gc
import logging
import os
import signal
import socket
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import count
from multiprocessing.connection import Connection

from apps.archive.capture.entry import CapturedJob
from apps.archive.capture.packing import pieces_of
from apps.archive.capture.resources import Tidying
from apps.archive.capture.serving import BEGIN, WRITE, Answer, Serving
from apps.archive.sinks.base import Sink, SinkError, SinkRefused, SinkUnavailable

logger = logging.getLogger(__name__)

_MOST_DEATHS = 1000
_LATER = 5  # sinks are in no hurry: the journal keeps what they lack


class Nursery:
    """Forks the processes of `sinks`. To be made before any thread is started and the journal is opened."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._here, there = socket.socketpair()
        gc.freeze()  # what is there now stays, and is shared by all
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, where a test has threads
            self._pid = os.fork()
        if not self._pid:
            _let_go(keep=there.fileno())
            _leave(lambda: _nurse(there, sinks))
        there.close()
        self.names = [sink.name for sink in sinks]
        self.sinks = isolated_sinks(self.names, self._here)

    def fileno(self) -> int:
        return self._here.fileno()

    def close(self) -> None:
        """Let it end, and with it the processes that have nothing more to do."""
        self._here.close()
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


class _Door:
    """Where a nursery is asked for processes, from whatever process holds its socket."""

    def __init__(self, nursery: socket.socket) -> None:
        self._here = nursery
        self._asking = threading.Lock()  # drains start at the same time: each is to get its own

    def start(self, number: int) -> Connection:
        """Start the process of a sink. Raises `SinkUnavailable`."""
        try:
            with self._asking:
                self._here.send(bytes([number]))
                _, (descriptor,), _, _ = socket.recv_fds(self._here, 1, 1)
        except (OSError, ValueError) as error:
            raise SinkUnavailable(f"its process cannot be started: {error}") from error
        return Connection(descriptor)


class IsolatedSink:
    """Stands for a sink that lives in another process."""

    def __init__(self, name: str, nursery: _Door, number: int) -> None:
        self.name = name
        self._nursery = nursery
        self._number = number
        self._process: Connection | None = None
        self._begun: dict[int, Sequence[CapturedJob]] = {}  # by the number that its process knows them by
        self._numbers = count(1)
        self._died_of: set[tuple[int, str, datetime]] = set()

    def begin(self, jobs: Sequence[CapturedJob]) -> None:
        """Hand over jobs that `write` will be given, in the order of these calls."""
        number = next(self._numbers)
        try:
            self._ask(BEGIN, number, pieces_of(jobs))
        except (OSError, EOFError):
            self.close()  # `write` is told, by a process of its own if it has to be
        else:
            self._begun[number] = jobs

    def write(self, jobs: Sequence[CapturedJob]) -> Mapping[int, str]:
        """Let the sink write. A process that died is started anew the next time."""
        number = next((number for number, begun in self._begun.items() if begun is jobs), 0)
        try:
            answer = self._ask(WRITE, number, () if number else pieces_of(jobs))
        except (OSError, EOFError) as error:
            self.close()
            raise self._died(jobs) from error
        if isinstance(answer, Exception):
            self._begun.clear()
            raise answer
        if number:
            self._begun = {later: begun for later, begun in self._begun.items() if later > number}
        return answer

    def _ask(self, what: str, number: int, pieces: Sequence[bytes]) -> Answer:
        process = self._process = self._process or self._nursery.start(self._number)
        process.send((what, number, pieces))
        return process.recv()  # type: ignore[no-any-return]

    def close(self) -> None:
        """Let the process end."""
        self._begun.clear()
        if self._process:
            self._process.close()
            self._process = None

    def _died(self, jobs: Sequence[CapturedJob]) -> SinkError:
        """Say what it means: jobs of which it dies twice are at fault themselves."""
        batch = len(jobs), jobs[0].job_id, jobs[0].submitted_at
        if batch not in self._died_of:
            self._died_of = {*self._died_of, batch} if len(self._died_of) < _MOST_DEATHS else {batch}
            return SinkUnavailable("its process died")
        return SinkRefused("its process died twice of writing this")


def isolated_sinks(names: Sequence[str], nursery: socket.socket) -> list[IsolatedSink]:
    """Return the sinks of these names, in the order in which the nursery knows them."""
    door = _Door(nursery)
    return [IsolatedSink(name, door, number) for number, name in enumerate(names)]


def _nurse(requests: socket.socket, sinks: Sequence[Sink]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that end
    while number := requests.recv(1):
        here, there = socket.socketpair()
        if not os.fork():
            here.close()
            requests.close()
            _serve(Connection(there.detach()), sinks[number[0]])
            return
        socket.send_fds(requests, [b"."], [here.fileno()])
        here.close()
        there.close()


def _serve(jobs: Connection, sink: Sink) -> None:
    """Write what comes and answer how that went, until capture has gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.nice(_LATER)
    tidying, serving = Tidying(), Serving(sink)
    with suppress(EOFError, OSError):
        while True:
            jobs.send(serving.answer(jobs.recv()))
            tidying.tidy()
    sink.close()


def _leave(last: Callable[[], None]) -> None:
    """Do one last thing in this process, and nothing that was meant for the process it was forked from."""
    try:
        last()
    except BaseException:
        logger.exception("a process of capture failed")
    finally:
        os._exit(0)


def _let_go(*, keep: int) -> None:
    """Give up the files and sockets of the process that was forked, and leave it to say when to end.

    Ctrl-C and service managers tell the whole group; what capture has read is written before all end.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.closerange(3, keep)
    os.closerange(keep + 1, os.sysconf("SC_OPEN_MAX"))
