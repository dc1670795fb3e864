"""Processes of one run: pid files that outlive it, and stopping exactly these processes.

Each process leads a session. Its pid file contains pid, boot and start time, so that a reused pid
is never mistaken for ours.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The servers stop last, because everything else talks to them. SIGINT is PostgreSQL's fast
# shutdown.
SERVERS = {"postgres": signal.SIGINT, "valkey": signal.SIGTERM}
PROCESS_GRACE_SECONDS = 8.0
SERVER_GRACE_SECONDS = 4.0


@dataclass(frozen=True)
class Stat:
    """The status of a process; `started` is the boot ID and the start in clock ticks since then."""

    state: str
    session: int
    started: str


def read_stat(pid: int) -> Stat | None:
    """Return the kernel's status of a process; None if it does not exist or is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (OSError, IndexError):
        return None
    return None if fields[0] in "ZX" else Stat(fields[0], int(fields[3]), f"{boot}:{fields[19]}")


def all_pids() -> list[int]:
    """Return the pids of this machine."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def session_members(session: int) -> list[int]:
    """Return the running processes of a session."""
    return [pid for pid in all_pids() if (stat := read_stat(pid)) and stat.session == session]


def free_port() -> int:
    """Return a port on loopback that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def spawn(
    name: str, command: list[str], run_dir: Path, **options: object
) -> subprocess.Popen[bytes]:
    """Start a process in a new session and write its pid file to `run_dir`."""
    options = {"stdin": subprocess.DEVNULL, "start_new_session": True} | options
    child = subprocess.Popen(command, **options)  # type: ignore[call-overload]
    stat = read_stat(child.pid)
    started = stat.started if stat else "-"
    (run_dir / f"{name}.pid").write_text(f"{child.pid} {started}\n")
    return child  # type: ignore[no-any-return]


class Stopping:
    """One process being stopped: terminated first, killed with its whole session after a grace
    period.
    """

    def __init__(self, pid_file: Path) -> None:
        self.pid_file = pid_file
        pid, _, self.started = pid_file.read_text().strip().partition(" ")
        self.pid = int(pid or 0)

    def ask(self) -> None:
        if self.alive():
            _signal(self.pid, SERVERS.get(self.pid_file.stem, signal.SIGTERM))

    def alive(self) -> bool:
        stat = read_stat(self.pid) if self.pid else None
        return stat is not None and stat.started == self.started

    def finish(self) -> None:
        """Kill the rest of the session, unless its id now belongs to other processes."""
        leader = read_stat(self.pid) if self.pid else None
        if self.pid and (leader is None or leader.started == self.started):
            for pid in session_members(self.pid):
                if leader is not None or _is_of_run(pid, self.pid_file.parent):
                    _signal(pid, signal.SIGKILL)
        self.pid_file.unlink(missing_ok=True)


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _is_of_run(pid: int, run_dir: Path) -> bool:
    with suppress(OSError):
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return f"OPSPORTAL_RUN={run_dir}".encode() in environment
    return False


def stop_all(run_dir: Path, tick: Callable[[], None] = lambda: None) -> int:
    """Stop every process with a pid file in `run_dir`, servers last;
    return how many were still running.
    """
    files = sorted(run_dir.glob("*.pid"))
    count = _stop([f for f in files if f.stem not in SERVERS], PROCESS_GRACE_SECONDS, tick)
    return count + _stop([f for f in files if f.stem in SERVERS], SERVER_GRACE_SECONDS, tick)


def _stop(pid_files: list[Path], grace_seconds: float, tick: Callable[[], None]) -> int:
    stopping = [Stopping(f) for f in pid_files]
    count = sum(s.alive() for s in stopping)
    for process in stopping:
        process.ask()
    until = time.monotonic() + grace_seconds
    while any(s.alive() for s in stopping) and time.monotonic() < until:
        tick()
        time.sleep(0.02)
    for process in stopping:
        process.finish()
    return count


def guard(
    run_dir: Path, *, remove: Path | None = None, keep_open: tuple[int, ...] = ()
) -> subprocess.Popen[bytes]:
    """Start the watchdog of this run: it stops the run's processes when this process ends,
    even by kill -9.
    """
    command = [sys.executable, "-m", "dev.guard", str(run_dir), *([str(remove)] if remove else [])]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=keep_open,
    )
