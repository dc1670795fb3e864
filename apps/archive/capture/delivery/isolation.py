"""Each sink in a process of its own: it takes another core than the reader, and a client library that crashes takes
nothing else down. A nursery, forked before there are threads, forks them, at the start and whenever one has died.

Beside sinks there are places, which capture reports to. One that needs what a sink needs shares the sink's process.
"""

import gc
import logging
import os
import select
import signal
import socket
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from typing import Any, Protocol

from apps.archive.capture.resources import Tidying
from apps.archive.sinks.base import BeginsAhead, SinkError, SinkRefused, SinkUnavailable, Writer
from apps.archive.wire.batches import pieces_of, unpack
from apps.archive.wire.entry import CapturedJob

logger = logging.getLogger(__name__)

_MOST_DEATHS = 1000
_LATER = 5  # sinks are in no hurry: the journal keeps what they lack
_ACCEPT_SECONDS = 5.0
_ACCEPTED = b"."

_BEGIN, _WRITE = "begin", "write"

# What to do; the number of a batch that is or was begun, or 0; and the packed jobs, none where they were begun.
_Question = tuple[str, int, Sequence[bytes]]
_Answer = Mapping[int, str] | SinkUnavailable | SinkRefused


class Place(Protocol):
    """Where capture reports to, and where the masking rules are."""

    def report(self, cluster: str, detail: Mapping[str, Any]) -> None: ...

    def masking_rules(self) -> Sequence[Any]: ...

    def close(self) -> None:
        """Let go of connections. Called when capture ends, and where something failed."""


@dataclass(frozen=True, slots=True)
class _Servant:
    """What a process can be asked to do; those of one `process` share it."""

    process: int
    serve: Callable[[Connection], None]


class Nursery:
    """Forks the processes of `sinks`. To be made before any thread is started and the journal is opened.

    Each place comes with the number of the sink whose process it shares, or None.
    """

    def __init__(self, sinks: Sequence[Writer], places: Sequence[tuple[Place, int | None]] = ()) -> None:
        servants = [_Servant(number, partial(_serve_sink, sink)) for number, sink in enumerate(sinks)]
        for place, beside in places:
            process = len(servants) if beside is None else beside
            servants.append(_Servant(process, partial(_serve, answer=partial(_ask, place), close=place.close)))
        self._here, there = socket.socketpair()
        self._pid = fork_process(lambda: _nurse(there, servants), keep=[there.fileno()])
        there.close()
        self.sinks = [IsolatedSink(sink.name, self._here, number) for number, sink in enumerate(sinks)]
        self.places = [IsolatedPlace(self._here, number) for number in range(len(sinks), len(servants))]

    def fileno(self) -> int:
        return self._here.fileno()

    def close(self) -> None:
        """Let it end, and with it the processes that have nothing more to do."""
        for place in self.places:
            place.close()
        self._here.close()
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


class _Isolated:
    """What lives in another process, which is started where it is asked something and does not run."""

    def __init__(self, nursery: socket.socket, number: int) -> None:
        self._nursery = nursery
        self._number = number
        self._process: Connection | None = None

    def close(self) -> None:
        """Let the process end, unless it serves another."""
        if self._process:
            self._process.close()
            self._process = None

    def _answer(self, question: tuple[Any, ...]) -> Any:
        """Raises `SinkUnavailable` where no process can be started, `OSError` or `EOFError` where it has died."""
        process = self._process = self._process or self._start()
        process.send(question)
        return process.recv()

    def _start(self) -> Connection:
        """Hand the nursery one end of a connection. It answers nothing: others who ask now might get the answer."""
        here, there = socket.socketpair()
        with there:
            try:
                _hand_over(self._nursery, self._number, there)
            except OSError as error:
                here.close()
                raise SinkUnavailable(f"its process cannot be started: {error}") from error
        return Connection(here.detach())


class IsolatedSink(_Isolated):
    """Stands for a sink that lives in another process."""

    def __init__(self, name: str, nursery: socket.socket, number: int) -> None:
        super().__init__(nursery, number)
        self.name = name
        self._begun: dict[int, Sequence[CapturedJob]] = {}  # by the number that its process knows them by
        self._numbers = count(1)
        self._died_of: set[tuple[int, str, datetime]] = set()

    def begin(self, jobs: Sequence[CapturedJob]) -> None:
        """Hand over jobs that `write` will be given, in the order of these calls."""
        number = next(self._numbers)
        try:
            self._answer((_BEGIN, number, pieces_of(jobs)))
        except (OSError, EOFError):
            self.close()  # `write` is told, by a process of its own if it has to be
        else:
            self._begun[number] = jobs

    def write(self, jobs: Sequence[CapturedJob]) -> Mapping[int, str]:
        """Let the sink write. A process that died is started anew the next time."""
        number = next((number for number, begun in self._begun.items() if begun is jobs), 0)
        try:
            answer: _Answer = self._answer((_WRITE, number, () if number else pieces_of(jobs)))
        except (OSError, EOFError) as error:
            self.close()
            raise self._died(jobs) from error
        if isinstance(answer, Exception):
            self._begun.clear()
            raise answer
        if number:
            self._begun = {later: begun for later, begun in self._begun.items() if later > number}
        return answer

    def close(self) -> None:
        self._begun.clear()
        super().close()

    def _died(self, jobs: Sequence[CapturedJob]) -> SinkError:
        """Say what it means: jobs of which it dies twice are at fault themselves."""
        batch = len(jobs), jobs[0].job_id, jobs[0].submitted_at
        if batch not in self._died_of:
            self._died_of = {*self._died_of, batch} if len(self._died_of) < _MOST_DEATHS else {batch}
            return SinkUnavailable("its process died")
        return SinkRefused("its process died twice of writing this")


class IsolatedPlace(_Isolated):
    """Stands for a place that lives in another process. Raises `SinkUnavailable` where that cannot reach it."""

    def report(self, cluster: str, detail: Mapping[str, Any]) -> None:
        self._ask("report", cluster, detail)

    def masking_rules(self) -> Sequence[Any]:
        return self._ask("masking_rules")  # type: ignore[no-any-return]

    def _ask(self, what: str, *arguments: Any) -> Any:
        try:
            answer = self._answer((what, arguments))
        except (OSError, EOFError) as error:
            self.close()
            raise SinkUnavailable("its process died") from error
        if isinstance(answer, Exception):
            raise answer
        return answer


def _nurse(requests: socket.socket, servants: Sequence[_Servant]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that end
    running: dict[int, socket.socket] = {}
    while request := _handed_over(requests):
        number, connection = request
        process = servants[number].process
        with connection:
            if _accepted(running.get(process), number, connection):
                continue
            if process in running:
                running.pop(process).close()
            running[process], its_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with its_control:
                if not os.fork():  # which ends as the nursery would
                    for each in (requests, *running.values()):
                        each.close()
                    _attend(its_control, servants, number, connection)
                    return


def _hand_over(to: socket.socket, number: int, connection: socket.socket | Connection) -> None:
    socket.send_fds(to, [bytes([number])], [connection.fileno()])


def _handed_over(source: socket.socket) -> tuple[int, Connection] | None:
    """Wait for whom to serve next, and its connection; nothing where nobody is left who could ask."""
    number, descriptors, _, _ = socket.recv_fds(source, 1, 1)
    return (number[0], Connection(descriptors[0])) if number else None


def _accepted(control: socket.socket | None, number: int, connection: Connection) -> bool:
    """Hand a connection to a process that runs already. Returns whether it has taken it: it may be about to end."""
    if control is None:
        return False
    try:
        control.settimeout(_ACCEPT_SECONDS)
        _hand_over(control, number, connection)
        return control.recv(1) == _ACCEPTED
    except OSError:
        return False


def _attend(control: socket.socket, servants: Sequence[_Servant], number: int, connection: Connection) -> None:
    """Serve a connection, and those that the nursery hands over later, each in a thread, until all have ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.nice(_LATER)
    ends, end = socket.socketpair()
    waited = [ends, control]

    def serve(number: int, connection: Connection) -> None:
        try:
            with connection, suppress(EOFError, OSError):
                servants[number].serve(connection)
        finally:
            end.send(b".")

    def begin(number: int, connection: Connection) -> None:
        threading.Thread(target=serve, args=(number, connection), daemon=True).start()

    begin(number, connection)
    serving = 1
    while serving:
        ready, _, _ = select.select(waited, [], [])
        if control in ready:
            if later := _handed_over(control):
                begin(*later)
                serving += 1
                with suppress(OSError):
                    control.send(_ACCEPTED)
            else:  # the nursery has gone: nothing more comes
                waited.remove(control)
        elif ends in ready:
            serving -= len(ends.recv(1))


def _serve(asked: Connection, *, answer: Callable[[Any], object], close: Callable[[], None]) -> None:
    """Answer what comes, until capture has gone."""
    tidying = Tidying()
    with suppress(EOFError, OSError):
        while True:
            asked.send(answer(asked.recv()))
            tidying.tidy()
    close()


def _serve_sink(sink: Writer, asked: Connection) -> None:
    _serve(asked, answer=_Serving(sink).answer, close=sink.close)


def _ask(place: Place, question: tuple[str, tuple[Any, ...]]) -> object:
    """Return what the place answers, or that it is away."""
    what, arguments = question
    try:
        return getattr(place, what)(*arguments)
    except Exception as error:  # its library may not be known where this goes
        place.close()
        return SinkUnavailable(str(error).strip() or repr(error))


class _Serving:
    """Holds the batches that were begun until they are written, in that order, or something fails."""

    def __init__(self, sink: Writer) -> None:
        self._sink = sink
        self._begun: dict[int, Callable[[], Sequence[CapturedJob]]] = {}

    def answer(self, question: _Question) -> _Answer:
        """Do what is asked; return the reasons for refused jobs, or what is to be raised on the other side."""
        what, number, pieces = question
        if what == _BEGIN:
            self._begin(number, pieces)
            return {}
        answer = self._write(self._taken(number)() if number else unpack(pieces))
        if isinstance(answer, Exception):
            self._begun.clear()
        return answer

    def _begin(self, number: int, pieces: Sequence[bytes]) -> None:
        if not isinstance(self._sink, BeginsAhead):
            self._begun[number] = partial(unpack, pieces)  # small until they are written
            return
        jobs = unpack(pieces)
        self._begun[number] = lambda: jobs
        with suppress(Exception):  # which `write` meets as well, and tells
            self._sink.begin(jobs)

    def _taken(self, number: int) -> Callable[[], Sequence[CapturedJob]]:
        """Return how to get at a batch, and forget those begun before it: nobody asks for them any more."""
        taken = self._begun[number]
        self._begun = {later: jobs for later, jobs in self._begun.items() if later > number}
        return taken

    def _write(self, jobs: Sequence[CapturedJob]) -> _Answer:
        try:
            return dict(self._sink.write(jobs))
        except (SinkUnavailable, SinkRefused) as error:
            return type(error)(*error.args)
        except Exception as error:  # of the sink's library, which may not be known where it goes
            logger.exception("%s", self._sink.name)
            return SinkRefused(str(error).strip() or repr(error))


def fork_process(work: Callable[[], object], *, keep: Sequence[int]) -> int:
    """Do `work` in a new process, which has these files alone beside the first three; return its id.

    It is left to capture to say when to end: Ctrl-C and service managers tell the whole group, and what capture has
    read is written before all end.
    """
    gc.freeze()  # what is there now stays, and is shared by all
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, where a test has threads
        pid = os.fork()
    if pid:
        return pid
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        start = 3
        for descriptor in sorted(keep):
            os.closerange(start, descriptor)
            start = descriptor + 1
        os.closerange(start, os.sysconf("SC_OPEN_MAX"))
        work()
    except BaseException:
        logger.exception("a process of capture failed")
    finally:  # nothing of what was meant for the process it was forked from
        logging.shutdown()
        os._exit(0)
