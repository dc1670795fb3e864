"""Runs functions over untrusted text in other processes, which are killed when they take too long.

For what no one can bound in advance, such as a lexer or an alignment: a thread cannot be stopped,
and a regular expression that backtracks holds the interpreter, and so every thread of a web worker.
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
_PROGRAM = "import sys; from apps.core.domain.bounded import serve; serve(*map(int, sys.argv[1:]))"
_LONGEST_SECONDS = 30  # a call ends by itself after this, where the caller was killed


class BudgetExceeded(Exception):
    """The function took too long, needed too much memory or failed."""


class PoolBusy(BudgetExceeded):
    """All processes were busy: the function did not begin."""


class BoundedPool:
    """Up to `PROCESSES` processes, each started when it is needed and kept.

    Safe for threads, and after a fork.
    """

    def __init__(self) -> None:
        self._reset()
        atexit.register(self.close)

    def close(self) -> None:
        """Kill the processes that wait for work, if this process started them."""
        if self._owner == os.getpid():
            while self._idle:
                self._idle.pop().kill()

    def call(self, function: Callable[..., T], *arguments: Any, seconds: float) -> T:
        """Return what the module-level `function` returns for these picklable arguments.

        Raises `BudgetExceeded`, and `PoolBusy` if it could not begin within these seconds. The
        function's module must be importable without Django's settings.
        """
        if self._owner != os.getpid():  # the processes belong to the one that forked us
            self._reset()
        if not self._free.acquire(timeout=seconds):
            raise PoolBusy("all processes are busy")
        try:
            process = self._idle.pop() if self._idle else _Process()
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
    """A fresh interpreter with few variables and files, which answers one question at a time."""

    def __init__(self) -> None:
        here, there = socket.socketpair()
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        with there:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(there.fileno()), str(MEMORY_BYTES)],
                env=environment,
                stdin=subprocess.DEVNULL,
                pass_fds=[there.fileno()],
            )
        self._connection = Connection(here.detach())
        self._started = False

    def call(self, function: object, arguments: object, seconds: float) -> Any:
        """Raises `BudgetExceeded`.

        To start the interpreter and to import the function is not part of the budget.
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
    """Answer the questions of a pool, until it has gone."""
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
            except Exception as error:  # the caller has a plain result instead
                answer = BudgetExceeded(f"{type(error).__name__}: {error}"[:500])
            signal.alarm(0)
            connection.send(answer)
