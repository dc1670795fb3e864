"""Run functions over untrusted text in separate processes, which are killed on a timeout.

This is for functions whose time cannot be bounded in advance, such as a lexer or an alignment. A
thread cannot be stopped, and a backtracking regular expression holds the interpreter lock and so
blocks every thread of a web worker.
"""

import atexit
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, TypeVar

T = TypeVar("T")

PROCESSES = 2
MEMORY_BYTES = 512 * 1024 * 1024
START_SECONDS = 20.0
_PROGRAM = "import sys; from apps.core.bounded_pool import serve; serve(*map(int, sys.argv[1:]))"
# A call ends by itself after this time if the caller was killed.
_LONGEST_SECONDS = 30


class BudgetExceeded(Exception):
    """The function took too long, needed too much memory, or failed."""


class PoolBusy(BudgetExceeded):
    """All processes were busy, so the function was not called."""


class BoundedPool:
    """A pool of up to `PROCESSES` processes of limited memory, started on demand and kept.

    It is thread-safe and can be used after a fork.
    """

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        self._memory_bytes = memory_bytes
        self._reset()
        atexit.register(self.close)

    def close(self) -> None:
        """Kill the idle processes, if this process started them."""
        if self._owner == os.getpid():
            while self._idle:
                self._idle.pop().kill()

    def call(self, function: Callable[..., T], *arguments: Any, seconds: float) -> T:
        """Call a module-level `function` with picklable arguments and return its result.

        Raises `BudgetExceeded`, and `PoolBusy` if no process was free within these seconds. The
        function's module must be importable without Django's settings.
        """
        # After a fork, the processes belong to the parent.
        if self._owner != os.getpid():
            self._reset()
        if not self._free.acquire(timeout=seconds):
            raise PoolBusy("all processes are busy")
        try:
            process = self._idle.pop() if self._idle else _Process(self._memory_bytes)
            try:
                answer = process.call(function, arguments, seconds)
            except BaseException:
                process.kill()
                raise
            self._idle.append(process)
        finally:
            self._free.release()
        if isinstance(answer, BudgetExceeded):
            raise answer
        return answer  # type: ignore[no-any-return]

    def _reset(self) -> None:
        self._owner = os.getpid()
        self._free = threading.BoundedSemaphore(PROCESSES)
        self._idle: list[_Process] = []


class _Process:
    """A new interpreter with few variables and files, which handles one call at a time."""

    def __init__(self, memory_bytes: int) -> None:
        here, there = socket.socketpair()
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        with there:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(there.fileno()), str(memory_bytes)],
                env=environment,
                stdin=subprocess.DEVNULL,
                pass_fds=[there.fileno()],
            )
        self._connection = Connection(here.detach())
        self._started = False

    def call(self, function: object, arguments: object, seconds: float) -> Any:
        """Call a function and return its result. Raises `BudgetExceeded`.

        Starting the interpreter and importing the function do not count as time.
        """
        try:
            if not self._started:
                self._receive(START_SECONDS)
                self._started = True
            self._connection.send(function)
            self._receive(START_SECONDS)
            self._connection.send(arguments)
            return self._receive(seconds)
        except (OSError, EOFError) as error:
            raise BudgetExceeded("its process died") from error

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._connection.close()

    def _receive(self, seconds: float) -> Any:
        if not self._connection.poll(seconds):
            raise BudgetExceeded(f"no result within {seconds:g} s")
        return self._connection.recv()


POOL = BoundedPool()


def serve(descriptor: int, memory_bytes: int) -> None:
    """Handle the calls of a pool until the pool closes the connection."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    connection = Connection(descriptor)
    connection.send(None)
    with suppress(EOFError, OSError):
        while True:
            function = connection.recv()
            connection.send(None)
            arguments = connection.recv()
            signal.alarm(_LONGEST_SECONDS)
            try:
                answer = function(*arguments)
            except Exception as error:
                # Pass any error on to the caller.
                answer = BudgetExceeded(f"{type(error).__name__}: {error}"[:500])
            signal.alarm(0)
            connection.send(answer)
