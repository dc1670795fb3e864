"""Running Slurm's own commands: a list of words, never a shell; a clean environment; always a time limit."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from apps.clusters.schedulers.base import SchedulerError

# Whatever the caller's own settings are: no translation, times as seconds since 1970, whole array expressions.
_FIXED = {"LC_ALL": "C", "TZ": "UTC", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
# What a submitting command keeps of the caller's variables: the others may be secrets, or options (`SBATCH_…`).
_FOR_SUBMITTING = {"PATH", "HOME", "USER", "LOGNAME", "SLURM_CONF", *_FIXED}
_TIMED_OUT = 124
_DROPPED_PREFIXES = ("SLURM_", "SACCT_", "SCONTROL_", "SQUEUE_")


class CommandFailed(SchedulerError):
    """A command ended with an error; `stderr` is what it said."""

    def __init__(self, program: str, stderr: str) -> None:
        super().__init__(f"{program}: {stderr}")
        self.stderr = stderr


@dataclass(frozen=True)
class Commands:
    """How to run the commands of one cluster."""

    conf: str = ""
    directory: str = ""
    timeout_seconds: float = 60

    def run(self, program: str, *arguments: str) -> str:
        """Return what `program` prints, as text. Raises as `output` does."""
        return self.output(program, *arguments).decode(errors="replace")

    def output(self, program: str, *arguments: str) -> bytes:
        """Return what `program` prints. Raises `SchedulerError`; `CommandFailed` where it ran and failed."""
        command = [self._path(program), *arguments]
        return self._answer(program, command, self._environment(os.environ), None, self.timeout_seconds)

    def submit(self, program: str, *arguments: str, script: IO[bytes], variables: Mapping[str, str]) -> str:
        """Run `program` with a script to read, and these variables; return what it prints. Raises as `output` does.

        It ends in time even if we are killed, so that whoever looks later knows that nothing is on its way.
        """
        limit = ["timeout", "--kill-after=5", f"{self.timeout_seconds:g}"]
        inherited = {name: value for name, value in self._environment(os.environ).items() if name in _FOR_SUBMITTING}
        command = [*limit, self._path(program), *arguments]
        environment = {**variables, **inherited}
        return self._answer(program, command, environment, script, self.timeout_seconds + 10).decode(errors="replace")

    def _path(self, program: str) -> str:
        return str(Path(self.directory) / program) if self.directory else program

    def _answer(
        self, program: str, command: list[str], environment: dict[str, str], stdin: IO[bytes] | None, seconds: float
    ) -> bytes:
        try:
            result = subprocess.run(
                command,
                env=environment,
                stdin=stdin or subprocess.DEVNULL,
                capture_output=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise SchedulerError(f"{program}: no answer within {self.timeout_seconds:g} s") from error
        except OSError as error:
            raise SchedulerError(f"{program}: cannot be run: {error.strerror}") from error
        if result.returncode == _TIMED_OUT and stdin:
            raise SchedulerError(f"{program}: no answer within {self.timeout_seconds:g} s")
        if result.returncode:
            said = " ".join(result.stderr.decode(errors="replace").split())
            raise CommandFailed(program, said or f"ended with status {result.returncode}")
        return result.stdout

    def _environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in inherited.items() if not name.startswith(_DROPPED_PREFIXES)}
        conf = self.conf or inherited.get("SLURM_CONF", "")
        return kept | _FIXED | ({"SLURM_CONF": conf} if conf else {})
