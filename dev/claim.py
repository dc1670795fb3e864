"""Exclusive use of VAR and the port by one run: options, lock,
and cleaning up after a killed run.
"""

import argparse
import errno
import fcntl
import os
import shutil
import socket
import time
from pathlib import Path

from dev.layout import Layout
from dev.messages import SetupError, say
from dev.processes import read_stat, stop_all

LOCK_ENVIRONMENT = "OPSPORTAL_LOCK"
NEEDED_BYTES = 300_000_000
WAIT_SECONDS = 20


def parse_options(arguments: list[str]) -> tuple[int, Layout]:
    """Return port and layout. Raises `SetupError` for an invalid port."""
    parser = argparse.ArgumentParser(prog="make run", add_help=False)
    parser.add_argument("--port", default="8000")
    parser.add_argument("--var", default="var")
    options = parser.parse_args(arguments)
    if not options.port.isdecimal() or not 0 < int(options.port) < 65536:
        raise SetupError(
            f"PORT={options.port} is no port: choose a number from 1024 to 65535: make run "
            "PORT=8000"
        )
    return int(options.port), Layout(Path(options.var or "var"))


def claim(port: int, layout: Layout) -> int:
    """Lock VAR for this run, stop leftovers of a killed run, and check port and space.

    Keep the returned lock open.
    """
    layout.create()
    lock = _take_lock(layout)
    if left := stop_all(layout.run):
        say(f"stopped {left} processes that an earlier run had left")
    _check_port(port)
    if shutil.disk_usage(layout.var).free < NEEDED_BYTES:
        raise SetupError(
            f"no space: free {NEEDED_BYTES // 1_000_000} MB on the disk of {layout.var}, or "
            "choose another VAR"
        )
    return lock


def hand_on(lock: int) -> None:
    """Keep the lock across the `exec` into the environment's Python."""
    os.set_inheritable(lock, True)
    os.environ[LOCK_ENVIRONMENT] = str(lock)


def take_over() -> int | None:
    """Return the inherited lock, if any."""
    handed = os.environ.pop(LOCK_ENVIRONMENT, None)
    if handed is not None:
        os.set_inheritable(int(handed), False)
    return None if handed is None else int(handed)


def _take_lock(layout: Layout) -> int:
    path = layout.run / "lock"
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            owner, _, started = os.pread(lock, 200, 0).decode().strip().partition(" ")
            stat = read_stat(int(owner)) if owner.isdecimal() else None
            if (stat and stat.started == started) or time.monotonic() > until:
                raise SetupError(
                    f"another run (pid {owner}) uses {layout.var}: "
                    "stop it, or start beside it: make run PORT=8001 VAR=var2"
                ) from None
            time.sleep(0.1)  # the watchdog of a killed run still stops its processes
    mine = read_stat(os.getpid())
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()} {mine.started if mine else ''}\n".encode(), 0)
    return lock


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno == errno.EACCES:
                raise SetupError(
                    f"port {port} is for root only: choose another: make run PORT=8000"
                ) from None
            raise SetupError(
                f"port {port} is taken: choose another: make run PORT={min(port + 1, 65535)}"
            ) from None
