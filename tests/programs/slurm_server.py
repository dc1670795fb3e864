"""A real Slurm for the tests of mark `slurm`, started once a session by `bin/slurm-up`.

A test module that asks for the fixture `slurm` says so with

    pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]
"""

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

BIN = Path(__file__).parents[2] / "bin"
CLUSTER = "test"
CANNOT_RUN = 3  # the exit status by which slurm-up says that this host is not fit for it
ENDED = {
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "TIMEOUT",
}


class SlurmServer:
    """A running Slurm.

    Its jobs run as root, and write to `jobs_dir` unless they are told otherwise.
    """

    def __init__(self, directory: Path, cluster: str = CLUSTER) -> None:
        self.directory = directory
        self.cluster = cluster
        self.conf = directory / "etc" / "slurm.conf"
        self.state_dir = directory / "state"
        self.jobs_dir = directory / "jobs"
        self.jobs_dir.mkdir(exist_ok=True)
        self.environment = {
            "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": "/root",
            "LC_ALL": "C.UTF-8",
            "SLURM_CONF": str(self.conf),
        }

    @property
    def nodes(self) -> list[str]:
        """Return the names of the nodes; jobs go to the first one while it has room."""
        return re.findall(r"^NodeName=(\S+)", self.conf.read_text(), re.MULTILINE)

    @property
    def limits_memory(self) -> bool:
        """Tell whether a job over its memory ends OUT_OF_MEMORY."""
        return "TaskPlugin=task/cgroup" in self.conf.read_text()

    def run(self, *command: str, env: Mapping[str, str] | None = None) -> str:
        """Run one of Slurm's commands in `jobs_dir` and return what it prints."""
        result = subprocess.run(
            command,
            env=self.environment | dict(env or {}),
            cwd=self.jobs_dir,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        output = result.stdout.decode(errors="replace")
        assert result.returncode == 0, (
            f"{command}: {output}{result.stderr.decode(errors='replace')}"
        )
        return output

    def scontrol(self, *words: str) -> str:
        return self.run("scontrol", *words)

    def submit(
        self, script: bytes | str, *options: str, env: Mapping[str, str] | None = None
    ) -> str:
        """Submit a batch script with options of sbatch and variables for its environment;
        return the job's id.
        """
        with tempfile.NamedTemporaryFile(
            dir=self.jobs_dir, prefix="script-", suffix=".sh", delete=False
        ) as file:
            file.write(script if isinstance(script, bytes) else script.encode())
        return self.run("sbatch", "--parsable", *options, file.name, env=env).strip()

    def job_dir(self, job_id: str) -> Path:
        """Return the directory of a job in the spool."""
        return self.state_dir / f"hash.{int(job_id) % 10}" / f"job.{job_id}"

    def states(self, job_id: str) -> dict[str, str]:
        """Return the state of a job, or of all tasks or components of it, by raw id."""
        shown = self.scontrol("--oneliner", "show", "job", job_id)
        return dict(
            re.findall(r"^JobId=(\d+) .*? JobState=(\w+) ", shown, re.MULTILINE | re.DOTALL)
        )

    def wait_state(
        self, job_id: str, state: str, *, reason: str = "", seconds: float = 180
    ) -> None:
        """Wait until a job is in this state by slurmctld,
        and for this reason where one is given.
        """
        state_line = rf"^   JobState={state} Reason={reason or '.*'} "
        deadline = time.monotonic() + seconds
        while not re.search(
            state_line, shown := self.scontrol("show", "job", job_id), re.MULTILINE
        ):
            assert time.monotonic() < deadline, (
                f"job {job_id} is not {state} {reason} after {seconds} s: {shown}"
            )
            time.sleep(0.1)

    def wait_ended(self, job_ids: Iterable[str], *, seconds: float = 300) -> None:
        """Wait until these jobs have ended, by slurmctld and by accounting."""
        deadline = time.monotonic() + seconds
        for job_id in job_ids:
            while True:
                states = self.states(job_id)
                recorded = (
                    self._recorded_states(states) if ENDED.issuperset(states.values()) else {}
                )
                if recorded == states:
                    break
                assert time.monotonic() < deadline, (
                    f"job {job_id} is {states}, recorded {recorded}, after {seconds} s: "
                    + self.scontrol("show", "job", job_id)
                )
                time.sleep(0.2)

    def _recorded_states(self, raw_ids: Iterable[str]) -> dict[str, str]:
        # The end of a quick job may be recorded before all the rest of it, its directory included.
        rows = self.run(
            "sacct", "-nPX", "-o", "JobIDRaw,State,WorkDir", "-j", ",".join(raw_ids)
        ).splitlines()
        return {
            job: state.split(" ")[0]
            for job, state, work_dir in (row.split("|") for row in rows)
            if work_dir
        }


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmServer]:
    """A real Slurm with accounting and three nodes.

    A host that cannot run it skips the test; with CI=true it fails.
    """
    with running_slurm("--nodes", "3") as server:
        yield server


@contextmanager
def running_slurm(
    *options: str, cluster: str = CLUSTER, etc: Mapping[str, str] | None = None
) -> Iterator[SlurmServer]:
    """Start a Slurm of one's own with options of `slurm-up` and files beside its slurm.conf,
    skipped as the fixture. Several can run side by side.
    """
    directory = Path(tempfile.mkdtemp(prefix="opsportal-slurm-"))
    directory.chmod(0o755)  # slurmd checks that a job's user may get to its spool
    (directory / "etc").mkdir()
    for name, text in (etc or {}).items():
        (directory / "etc" / name).write_text(text)
    watchdog = stop_when_gone(directory)
    try:
        started = subprocess.run(
            [BIN / "slurm-up", directory, "--cluster", cluster, *options],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if started.returncode == CANNOT_RUN:
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(
                f"slurm: {started.stderr.strip()}"
            )
        assert started.returncode == 0, started.stderr
        yield SlurmServer(directory, cluster)
    finally:
        watchdog.communicate(timeout=120)


def stop_when_gone(directory: Path) -> "subprocess.Popen[bytes]":
    """Start a watchdog that stops this Slurm when its standard input ends: when told to,
    or when we are killed.
    """
    script = 'cat; "$1" "$2"; rm -rf "$2"'
    command = ["sh", "-c", script, "watchdog", str(BIN / "slurm-down"), str(directory)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    )
