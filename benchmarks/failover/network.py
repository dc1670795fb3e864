"""Machines of one network, as network namespaces on one bridge: each can be killed or cut off."""

import fcntl
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from benchmarks.failover.processors import ProcessorLimit, processor_seconds, program_of
from dev.processes import ROOT, all_pids, session_members, spawn

BRIDGE = "opsf"
PREFIX = "10.93.0."
GATEWAY = f"{PREFIX}1"
#: Starts a program again where it ends, as its unit does by `Restart=`.
SUPERVISED = ("sh", "-c", 'while :; do "$@"; sleep 1; done', "sh")
#: The same, but only where it fails: `Restart=on-failure`.
SUPERVISED_ON_FAILURE = ("sh", "-c", 'until "$@"; do sleep 1; done', "sh")
_NAMESPACES = Path("/run/netns")
_LOCK = Path("/run/lock/opsportal-failover")
_KERNEL = Path("/proc/sys")


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
        self._programs: dict[str, tuple[list[str], dict[str, str]]] = {}
        self._sessions: dict[str, int] = {}
        self._limit: ProcessorLimit | None = None
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

    def configure(self, settings: dict[str, str]) -> None:
        """Change settings of its kernel's network, by their names."""
        values = [f"{name}={value}" for name, value in settings.items()]
        subprocess.run(self.command("sysctl", "--quiet", *values), check=True)

    def command(self, *command: str) -> list[str]:
        """Return the command line that runs a command on the machine."""
        inside = ["ip", "netns", "exec", self._namespace, *command]
        return self._limit.command(inside) if self._limit else inside

    def limit(self, processors: float) -> None:
        """Let all programs that are started from now on have so much of a processor together."""
        self._limit = ProcessorLimit(self._namespace, processors)

    def processor_seconds(self, program: str = "") -> float:
        """Return the CPU time of all its processes so far, or of those of one program."""
        pids = [pid for pid in self.pids() if program in {"", program_of(pid)}]
        return sum(map(processor_seconds, pids))

    def serve(
        self,
        program: str,
        command: list[str],
        environment: dict[str, str],
        supervisor: tuple[str, ...] = SUPERVISED,
    ) -> None:
        """Start a program now, and again where it ends, or when the machine comes back."""
        self._programs[program] = ([*supervisor, *command], environment)
        self.start(program)

    def start(self, program: str) -> None:
        """Start a program that is not running."""
        command, environment = self._programs[program]
        with (self.directory / f"{program}.log").open("ab") as log:
            process = spawn(
                f"{program}-{self.name}",
                self.command(*command),
                self._run,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._sessions[program] = process.pid

    def end(self, program: str) -> None:
        """Kill one program and what would start it again."""
        for pid in session_members(self._sessions[program]):
            _kill(pid)

    def kill(self) -> None:
        """Kill all its programs at once, as a loss of power does.

        The link goes too, so that the others hear nothing of it, not even closed connections.
        """
        self.cut()
        _kill_all(_NAMESPACES / self._namespace)

    def kill_program(self, name: str) -> None:
        """Kill all processes of a program, by its name in the kernel; all others go on."""
        for pid in self.pids():
            if program_of(pid) == name:
                _kill(pid)

    def come_back(self) -> None:
        """Connect the machine again, and start its programs if it was killed."""
        self.mend()
        if not self.pids():
            for program in self._programs:
                self.start(program)

    def cut(self) -> None:
        """Drop all packets from and to the machine; its programs go on."""
        _ip("link", "set", self._outside, "down")

    def mend(self) -> None:
        _ip("link", "set", self._outside, "up")

    def pids(self) -> list[int]:
        return _pids_in(_NAMESPACES / self._namespace)

    def remove(self) -> None:
        self.kill()
        _ip("netns", "delete", self._namespace)
        if self._limit:
            self._limit.remove()


def _pids_in(namespace: Path) -> list[int]:
    own = namespace.stat().st_ino
    return [pid for pid in all_pids() if _namespace_of(pid) == own]


def _kill_all(namespace: Path) -> None:
    while pids := _pids_in(namespace):
        for pid in pids:
            _kill(pid)
        time.sleep(0.01)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _namespace_of(pid: int) -> int | None:
    """Return the number of a process's network namespace; None where it has ended."""
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino
    except OSError:
        return None


class Network:
    """A bridge of this machine, which is `GATEWAY`, and the machines on it.

    This machine is the host of the proxy, and has the settings of its kernel until `close`.
    Waits while another run has one. Raises `NetworkError` where this user may not make one.
    """

    def __init__(self, base: Path) -> None:
        if os.geteuid():
            raise NetworkError("only root makes network namespaces")
        self._lock = _LOCK.open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.base = base
        self.machines: dict[str, Machine] = {}
        _remove_former()
        _ip("link", "add", BRIDGE, "type", "bridge")
        _ip("address", "add", f"{GATEWAY}/24", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")
        self._former_settings = _set_kernel(kernel_settings("sysctl.conf"))

    def add(self, name: str) -> Machine:
        machine = Machine(name, 11 + len(self.machines), self.base)
        self.machines[name] = machine
        return machine

    def close(self) -> None:
        for machine in self.machines.values():
            machine.remove()
        _ip("link", "delete", BRIDGE)
        _set_kernel(self._former_settings)
        self._lock.close()


def kernel_settings(file: str) -> dict[str, str]:
    """Return the values of a file of `deploy/` by their names."""
    lines = (ROOT / "deploy" / file).read_text().splitlines()
    settings = [line.split(" = ") for line in lines if not line.startswith("#")]
    return dict(settings)


def _set_kernel(settings: dict[str, str]) -> dict[str, str]:
    """Change settings of the kernel; return the values that they had."""
    former = {}
    for name, value in settings.items():
        file = _KERNEL / name.replace(".", "/")
        former[name] = file.read_text().strip()
        file.write_text(value)
    return former


def _remove_former() -> None:
    """Remove what a run left that was killed, with the daemons that its watchdog does not know."""
    for link in Path("/sys/class/net").glob(f"{BRIDGE}*"):
        _ip("link", "delete", link.name)
    if _NAMESPACES.is_dir():
        for namespace in _NAMESPACES.glob(f"{BRIDGE}-*"):
            _kill_all(namespace)
            _ip("netns", "delete", namespace.name)
