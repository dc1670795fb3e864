"""Machines of one network, as network namespaces on one bridge: each can be killed or cut off."""

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from dev.processes import all_pids, spawn

BRIDGE = "opsf"
PREFIX = "10.93.0."
GATEWAY = f"{PREFIX}1"
#: Starts a program again where it ends, as its unit does by `Restart=`.
SUPERVISED = ("sh", "-c", 'while :; do "$@"; sleep 1; done', "sh")
_NAMESPACES = Path("/run/netns")


class NetworkError(Exception):
    """This machine gives us no network namespaces."""


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NetworkError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


class Machine:
    """A network namespace with an address, and the programs that run in it."""

    def __init__(self, name: str, number: int, base: Path) -> None:
        self.name = name
        self.address = f"{PREFIX}{number}"
        self.directory = base / name
        self.directory.mkdir()
        self._run = base / "run"
        self._commands: list[tuple[str, list[str], dict[str, str]]] = []
        self._namespace = f"{BRIDGE}-{name}"
        self._outside = f"{BRIDGE}{number}"
        inside = ("netns", "exec", self._namespace, "ip")
        _ip("netns", "add", self._namespace)
        peer = ("peer", "name", "eth0", "netns", self._namespace)
        _ip("link", "add", self._outside, "type", "veth", *peer)
        _ip("link", "set", self._outside, "master", BRIDGE, "up")
        _ip(*inside, "address", "add", f"{self.address}/24", "dev", "eth0")
        _ip(*inside, "link", "set", "eth0", "up")
        _ip(*inside, "link", "set", "lo", "up")

    def serve(self, program: str, command: list[str], environment: dict[str, str]) -> None:
        """Start a program now, and again where it ends, or when the machine comes back."""
        self._commands.append((program, command, environment))
        self._start(program, command, environment)

    def _start(self, program: str, command: list[str], environment: dict[str, str]) -> None:
        with (self.directory / f"{program}.log").open("ab") as log:
            spawn(
                f"{program}-{self.name}",
                ["ip", "netns", "exec", self._namespace, *SUPERVISED, *command],
                self._run,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def kill(self) -> None:
        """Kill all its programs at once, as a loss of power does.

        The link goes too, so that the others hear nothing of it, not even closed connections.
        """
        self.cut()
        while pids := self._pids():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)

    def come_back(self) -> None:
        """Connect the machine again, and start its programs if it was killed."""
        self.mend()
        if not self._pids():
            for program, command, environment in self._commands:
                self._start(program, command, environment)

    def cut(self) -> None:
        """Drop all packets from and to the machine; its programs go on."""
        _ip("link", "set", self._outside, "down")

    def mend(self) -> None:
        _ip("link", "set", self._outside, "up")

    def _pids(self) -> list[int]:
        own = (_NAMESPACES / self._namespace).stat().st_ino
        return [pid for pid in all_pids() if _namespace_of(pid) == own]

    def remove(self) -> None:
        self.kill()
        _ip("netns", "delete", self._namespace)


def _namespace_of(pid: int) -> int | None:
    """Return the number of a process's network namespace; None where it has ended."""
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino
    except OSError:
        return None


class Network:
    """A bridge of this machine, which is `GATEWAY`, and the machines on it.

    Raises `NetworkError` where this user may not make one.
    """

    def __init__(self, base: Path) -> None:
        self._base = base
        self.machines: dict[str, Machine] = {}
        _remove_former()
        _ip("link", "add", BRIDGE, "type", "bridge")
        _ip("address", "add", f"{GATEWAY}/24", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")

    def add(self, name: str) -> Machine:
        machine = Machine(name, 11 + len(self.machines), self._base)
        self.machines[name] = machine
        return machine

    def close(self) -> None:
        for machine in self.machines.values():
            machine.remove()
        _ip("link", "delete", BRIDGE)


def _remove_former() -> None:
    """Remove what a run left that was killed; its programs have ended by its watchdog."""
    for link in Path("/sys/class/net").glob(f"{BRIDGE}*"):
        _ip("link", "delete", link.name)
    if _NAMESPACES.is_dir():
        for namespace in _NAMESPACES.glob(f"{BRIDGE}-*"):
            _ip("netns", "delete", namespace.name)
