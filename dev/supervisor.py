"""Runs the processes of a run: restarts them when they die, and shows and logs their output.

One thread, one loop. It never blocks on the terminal: if no one reads it, lines go to the log files
only.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dev.processes import session_members, spawn, stop_all

LOG_BYTES = 2_000_000
LONGEST_BACK_OFF_SECONDS = 30.0
STEADY_SECONDS = 60.0
LINE_BYTES = 4000  # below PIPE_BUF: a pipe that select calls writable takes it without blocking
COLOURS = (36, 33, 32, 35, 34, 96, 93, 92)


class Stopped(BaseException):
    """The run was asked to stop."""


class Terminal:
    """Standard output, as long as someone reads it."""

    def __init__(self) -> None:
        self.descriptor = sys.stdout.fileno()
        self.colour = sys.stdout.isatty()
        self.lost = 0

    def show(self, label: str, number: int, line: bytes) -> None:
        head = f"{label:9}| "
        if self.colour:
            head = f"\x1b[{COLOURS[number % len(COLOURS)]}m{label:9}|\x1b[0m "
        if self.lost and self._write(
            f"supervisor| {self.lost} lines not shown here; they are in the logs\n".encode()
        ):
            self.lost = 0
        if self.lost or not self._write(head.encode() + line[:LINE_BYTES] + b"\n"):
            self.lost += 1

    def _write(self, data: bytes) -> bool:
        with suppress(OSError):
            if select.select([], [self.descriptor], [], 0)[1]:
                os.write(self.descriptor, data)
                return True
        return False


class Log:
    """A log file of limited size; the older half is kept as NAME.log.1."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path.open("ab", buffering=0)

    def write(self, line: bytes) -> None:
        with suppress(OSError):  # a full disk must not stop the processes
            if self.file.tell() > LOG_BYTES:
                self.file.close()
                self.path.replace(self.path.with_suffix(".log.1"))
                self.file = self.path.open("ab", buffering=0)
            self.file.write(line + b"\n")


@dataclass
class Child:
    """One process of the run, across its restarts."""

    name: str
    command: list[str]
    environment: dict[str, str]
    log: Log
    number: int
    quiet: bool = False
    restart: bool = True
    before: Callable[[], None] = lambda: None
    process: "subprocess.Popen[bytes] | None" = None
    pipe: int = -1
    rest: bytes = b""
    started_at: float = 0.0
    failures: int = 0
    retry_at: float = 0.0
    status: int | None = None
    tail: list[bytes] = field(default_factory=list)


class Supervisor:
    """The processes of one run."""

    def __init__(self, run_dir: Path, log_dir: Path, cwd: Path) -> None:
        self.run_dir = run_dir
        self.log_dir = log_dir
        self.cwd = cwd
        self.children: dict[str, Child] = {}
        self.terminal = Terminal()
        self.stop_asked = False
        self.stopping = False

    def listen(self) -> None:
        """Let SIGINT, SIGTERM and SIGHUP stop the run, even if the parent ignored them."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: self.ask_stop())

    def ask_stop(self) -> None:
        self.stop_asked = True

    def start(
        self, name: str, command: list[str], environment: dict[str, str], **options: Any
    ) -> Child:
        """Start a process; unless `restart=False`, restart it whenever it ends, until `stop`."""
        log = Log(self.log_dir / f"{name}.log")
        child = Child(name, command, environment, log, len(self.children), **options)
        self.children[name] = child
        self._launch(child)
        return child

    def _launch(self, child: Child) -> None:
        child.started_at = time.monotonic()
        child.retry_at = 0.0
        options = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
            "env": child.environment,
            "cwd": self.cwd,
        }
        try:
            child.before()
            child.process = spawn(child.name, child.command, self.run_dir, **options)
        except OSError as error:
            self._line(child, f"could not start: {error}".encode())
            self._ended(child)
            return
        assert child.process.stdout
        child.pipe = child.process.stdout.fileno()
        os.set_blocking(child.pipe, False)

    def pump(self, seconds: float = 0.0) -> None:
        """Forward the output of the processes and restart those that died.

        Raises `Stopped` on a signal.
        """
        self._read(seconds)
        for child in self.children.values():
            if child.process and _has_ended(child.process.pid):
                self._reap(child)
            elif child.retry_at and time.monotonic() >= child.retry_at and not self.stopping:
                self._launch(child)
        if self.stop_asked and not self.stopping:
            raise Stopped

    def _read(self, seconds: float) -> None:
        pipes = {child.pipe: child for child in self.children.values() if child.pipe >= 0}
        for pipe in select.select(list(pipes), [], [], seconds)[0]:
            self._take(pipes[pipe])

    def _take(self, child: Child) -> None:
        """Read once from a process; forward a line when it is complete or exceeds the limit."""
        with suppress(BlockingIOError):
            data = os.read(child.pipe, 65536)
            if not data:
                child.pipe = -1
            *lines, child.rest = (child.rest + data).split(b"\n")
            if child.rest and (not data or len(child.rest) > LINE_BYTES):
                lines.append(child.rest)
                child.rest = b""
            for line in lines:
                self._line(child, line)

    def _line(self, child: Child, line: bytes) -> None:
        child.tail = [*child.tail[-19:], line]
        child.log.write(line)
        if not child.quiet or line.startswith(b"***"):
            self.terminal.show(child.name, child.number, line)

    def _reap(self, child: Child) -> None:
        """Reap a process after ending the rest of its session: until reaped,
        its pid is not reused.
        """
        assert child.process
        for pid in session_members(child.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while child.pipe >= 0 and select.select([child.pipe], [], [], 0)[0]:
            self._take(child)
        child.process.wait()
        if child.process.stdout:
            child.process.stdout.close()
        child.pipe = -1
        self._ended(child)

    def _ended(self, child: Child) -> None:
        status = child.process.returncode if child.process else None
        child.process = None
        if self.stopping or not child.restart:
            (self.run_dir / f"{child.name}.pid").unlink(missing_ok=True)
            child.restart = False
            child.status = status
            return
        if time.monotonic() - child.started_at > STEADY_SECONDS:
            child.failures = 0
        delay = min(2.0**child.failures, LONGEST_BACK_OFF_SECONDS)
        child.failures += 1
        child.retry_at = time.monotonic() + delay
        self._line(
            child,
            f"*** {child.name} {describe(status)}; starting it again in {delay:.0f} s".encode(),
        )

    def stop(self) -> None:
        """Stop everything, servers last, and wait for it."""
        self.stopping = True
        stop_all(self.run_dir, tick=self.pump)
        self.pump()


def _has_ended(pid: int) -> bool:
    """Return whether a child process has ended; it stays to be reaped."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def describe(status: int | None) -> str:
    """Describe how a process ended."""
    if status is None:
        return "did not start"
    return f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
