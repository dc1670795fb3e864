"""A real Slurm with two controllers, each with capture beside it on a machine of its own."""

import os
import shutil
import signal
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from benchmarks.failover.network import SUPERVISED_ON_FAILURE, Machine, Network
from dev.processes import ROOT
from tests.failover.waiting import wait_for

CLUSTER = "alps"
CONTROLLERS = ("ctl1", "ctl2")
#: `SlurmctldTimeout`: for how long the acting controller is silent when the other one takes over.
TIMEOUT_SECONDS = 10
_CANNOT_RUN = 3
_COMMAND_SECONDS = 60
#: Gives a program its own host name and names of hosts, and its own mounts: its controller's
#: directory, and the shared state.
_ON_HOST = """
set -e
hostname "$1"; mount --bind "$2" /etc/hosts; mount --bind "$3" "$4"
if [ "$5" ]; then bindfs "$5" "$5"; fi
shift 5
exec "$@"
"""
#: The acting controller writes the time and its own number there every few seconds.
_HEARTBEAT = struct.Struct(">QQ")


class SlurmCannotRun(Exception):
    """This host cannot run Slurm; the message says why."""


class SlurmPair:
    """Slurm with accounting and nodes on a machine `node`, and slurmctld on two others.

    With `remote_state`, each program sees the shared `StateSaveLocation` through a mount of its
    own, as on a network file system: without file events of what others write, and without answers
    while the machine is cut off. Raises `SlurmCannotRun`.
    """

    def __init__(
        self,
        network: Network,
        base: Path,
        *,
        remote_state: bool,
        timeout_seconds: int = TIMEOUT_SECONDS,
    ) -> None:
        self._base = base
        self._directory = base / "slurm"
        self._remote_state = remote_state
        self._node = network.add("node")
        self.controllers = [network.add(name) for name in CONTROLLERS]
        self._hosts = base / "hosts"
        machines = [self._node, *self.controllers]
        lines = [
            "127.0.0.1 localhost",
            *(f"{machine.address} {machine.name}" for machine in machines),
        ]
        self._hosts.write_text("\n".join(lines) + "\n")
        self.environment = {
            "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": "/root",
            "LC_ALL": "C.UTF-8",
            "SLURM_CONF": str(self._directory / "etc/slurm.conf"),
        }
        self._start_node(timeout_seconds)
        for machine in self.controllers:
            command = self._on_host(machine, ["slurmctld", "-D"])
            machine.serve("slurmctld", command, self.environment, SUPERVISED_ON_FAILURE)
            wait_for(lambda: self.acting() is self.controllers[0])
        wait_for(self.is_whole)

    def _start_node(self, timeout_seconds: int) -> None:
        command = [str(ROOT / "bin/slurm-up"), str(self._directory), "--cluster", CLUSTER]
        for machine in self.controllers:
            command += ["--controller", f"{machine.name}={machine.address}"]
        command += ["--set", f"SlurmctldTimeout={timeout_seconds}"]
        control = self._directory / "control"
        control.mkdir(parents=True)
        on_host = ["unshare", "--uts", "--mount", "sh", "-c", _ON_HOST, "sh", self._node.name]
        on_host += [str(self._hosts), str(control), str(control), ""]
        started = subprocess.run(
            self._node.command(*on_host, *command),
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if started.returncode == _CANNOT_RUN:
            raise SlurmCannotRun(started.stderr.strip())
        if started.returncode:
            raise RuntimeError(started.stderr)

    @property
    def state(self) -> Path:
        return self._directory / "state"

    def _on_host(self, machine: Machine, command: list[str]) -> list[str]:
        """Return the command line of a program of a controller's host."""
        arguments = [machine.name, str(self._hosts), str(machine.directory)]
        arguments += [str(self._directory / "control"), str(self.state) * self._remote_state]
        return ["unshare", "--uts", "--mount", "sh", "-c", _ON_HOST, "sh", *arguments, *command]

    def serve_capture(self, machine: Machine, portal: str, token: str, masking_key: str) -> None:
        """Start a capture beside a controller, with a token and a journal of its own."""
        environment = self.environment | {
            "PYTHONPATH": str(ROOT),
            "ARCHIVE_PORTAL_TOKEN": token,
            "CAPTURE_JOURNAL": str(machine.directory / "journal"),
            "CAPTURE_PORTAL": portal,
            "MASKING_KEY": masking_key,
        }
        command = [sys.executable, "-m", "capture", "--cluster", CLUSTER]
        command += ["--spool", str(self.state)]
        if not self._remote_state:
            command += ["--watch", "polling"]  # as if the other host's writes caused no events
        machine.serve("capture", self._on_host(machine, command), environment)

    def submit(self, script: str, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Submit a script with these variables; it may fail."""
        return self._run(["sbatch", "--parsable", "--output=/dev/null"], script, variables)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run one of Slurm's commands on a host without controller; it may fail."""
        return self._run([*command], "", {})

    def _run(
        self, command: list[str], text: str, variables: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["timeout", f"{_COMMAND_SECONDS}", *command],
            env=self.environment | variables,
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )

    def acting(self) -> Machine | None:
        """Return the machine of the controller that wrote the last heartbeat."""
        with suppress(OSError, struct.error):
            _, number = _HEARTBEAT.unpack((self.state / "heartbeat").read_bytes())
            return self.controllers[number]
        return None

    def is_whole(self) -> bool:
        """Whether both controllers answer, and all nodes take jobs."""
        if self.run("scontrol", "ping").stdout.count("is UP") != len(self.controllers):
            return False
        states = self.run("sinfo", "--noheader", "--Node", "--format=%t").stdout.split()
        return bool(states) and {"idle", "mix", "alloc"}.issuperset(states)

    def known_jobs(self) -> set[str]:
        """Return the ids of the jobs that the acting controller has in its memory."""
        listed = self.run("squeue", "--noheader", "--states=all", "--format=%A")
        if listed.returncode:
            raise RuntimeError(listed.stderr)
        return set(listed.stdout.split())

    def let_second_act(self) -> None:
        """Let the second controller take over, as for maintenance of the first, which ends."""
        self.run("scontrol", "takeover")
        wait_for(lambda: self.acting() is self.controllers[1])

    def start_first(self) -> None:
        """Start the first controller after its end; it takes over at once."""
        self.controllers[0].start("slurmctld")

    def cut(self, machine: Machine) -> None:
        """Cut a machine off from the network and the shared state."""
        machine.cut()
        self._signal(machine, "bindfs", signal.SIGSTOP)

    def mend(self, machine: Machine) -> None:
        self._signal(machine, "bindfs", signal.SIGCONT)
        machine.mend()

    def _signal(self, machine: Machine, program: str, number: int) -> None:
        for pid in machine.pids():
            with suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().strip() == program:
                    os.kill(pid, number)


def reason_against_remote_state() -> str:
    """Return why the shared state cannot be remote here, or an empty string."""
    if shutil.which("bindfs") is None:
        return "bindfs is missing: apt-get install bindfs"
    return ""
