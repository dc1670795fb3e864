"""Run scheduler commands without a shell, with few variables and limited time and output."""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from apps.clusters.schedulers.base import SchedulerError

#: Variables that every command inherits. Others may contain secrets or options (`SBATCH_…`).
_KEPT = ("PATH", "HOME", "USER", "LOGNAME")
_CHUNK = 1 << 16
_MOST_ERROR_BYTES = 4_000
# The exit status of timeout(1) after a timeout.
_TIMED_OUT = 124
_GRACE_SECONDS = 10


class CommandFailed(SchedulerError):
    """A command exited with an error; `stderr` is its error output."""

    def __init__(self, program: str, status: int, stderr: str) -> None:
        super().__init__(f"{program}: {stderr or f'ended with status {status}'}")
        self.status = status
        self.stderr = stderr


@dataclass(frozen=True)
class Commands:
    """How to run the commands of a cluster.

    `inherits` are prefixes of variables to inherit, `variables` are set in addition.
    """

    directory: str = ""
    timeout_seconds: float = 60
    most_bytes: int = 1 << 30
    inherits: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    def run(self, program: str, *arguments: str) -> str:
        """Return the output of `program` as text. Raises like `pieces`."""
        return self.output(program, *arguments).decode(errors="replace")

    def output(self, program: str, *arguments: str) -> bytes:
        """Return the output of `program`. Raises like `pieces`."""
        return b"".join(self.pieces(program, *arguments))

    def pieces(self, program: str, *arguments: str) -> Iterator[bytes]:
        """Yield the output of `program` in pieces.

        Raises `SchedulerError`, possibly after the last piece; `CommandFailed` if the command ran
        and failed.
        """
        return self._pieces(
            program, [self._path(program), *arguments], self._environment(), self.timeout_seconds
        )

    def submit(
        self, program: str, *arguments: str, script: IO[bytes], variables: Mapping[str, str]
    ) -> str:
        """Run `program` with a script as input and these variables, and return its output.

        Raises like `pieces`. The command ends in time even if this process is killed, so that a
        later look-up by name is conclusive.
        """
        return self._submit(
            program, [self._path(program), *arguments], script, {**variables, **self._environment()}
        )

    def submit_by(self, command: Sequence[str], *, content: IO[bytes]) -> str:
        """Run a complete command that submits a job, as `submit` does.

        Variables such as `SLURM_CONF` are not set: the command sets its own.
        """
        return self._submit(command[0], command, content, self._environment())

    def _submit(
        self,
        program: str,
        command: Sequence[str],
        script: IO[bytes],
        environment: Mapping[str, str],
    ) -> str:
        command = ["timeout", "--kill-after=5", f"{self.timeout_seconds:g}", *command]
        try:
            pieces = self._pieces(
                program, command, environment, self.timeout_seconds + _GRACE_SECONDS, script
            )
            return b"".join(pieces).decode(errors="replace")
        except CommandFailed as error:
            if error.status == _TIMED_OUT:
                raise SchedulerError(
                    f"{program}: no answer within {self.timeout_seconds:g} s"
                ) from error
            raise

    def _path(self, program: str) -> str:
        if not self.directory:
            return program
        return str(Path(self.directory) / program)

    def _environment(self) -> dict[str, str]:
        kept = {}
        for name, value in os.environ.items():
            if name in _KEPT or name.startswith(self.inherits):
                kept[name] = value
        return kept | {"LC_ALL": "C", "TZ": "UTC"} | dict(self.variables)

    def _pieces(
        self,
        program: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        seconds: float,
        stdin: IO[bytes] | None = None,
    ) -> Iterator[bytes]:
        try:
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=stdin or subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise SchedulerError(f"{program}: cannot be run: {error.strerror}") from error
        with process:
            try:
                yield from self._answer(program, process, time.monotonic() + seconds)
            except BaseException:
                # Also when the caller stops reading.
                with suppress(ProcessLookupError):
                    # Kill the command with its children.
                    os.killpg(process.pid, signal.SIGKILL)
                raise

    def _answer(
        self, program: str, process: subprocess.Popen[bytes], ends_at: float
    ) -> Iterator[bytes]:
        stderr = b""
        size = 0
        try:
            for stream, piece in _read(process, ends_at):
                if stream is process.stderr:
                    stderr += piece[: _MOST_ERROR_BYTES - len(stderr)]
                    continue
                size += len(piece)
                if size > self.most_bytes:
                    raise SchedulerError(
                        f"{program}: more than {self.most_bytes:,} bytes of output"
                    )
                yield piece
            status = process.wait(timeout=max(0.0, ends_at - time.monotonic()))
        except (subprocess.TimeoutExpired, TimeoutError):
            raise SchedulerError(
                f"{program}: no answer within {self.timeout_seconds:g} s"
            ) from None
        if status:
            raise CommandFailed(program, status, " ".join(stderr.decode(errors="replace").split()))


def _read(process: subprocess.Popen[bytes], ends_at: float) -> Iterator[tuple[IO[bytes], bytes]]:
    """Yield pieces of both streams until both end. Raises `TimeoutError`."""
    with selectors.DefaultSelector() as waiting:
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                waiting.register(stream, selectors.EVENT_READ, stream)
        while waiting.get_map():
            if (left := ends_at - time.monotonic()) <= 0:
                raise TimeoutError
            for key, _ in waiting.select(left):
                stream = key.data
                if piece := os.read(key.fd, _CHUNK):
                    yield stream, piece
                else:
                    waiting.unregister(stream)


class CommandScheduler:
    """Base class of adapters that run commands.

    Common options: `bin`, the directory of the commands, and `timeout_seconds` of one command.
    """

    name: str
    known_options: frozenset[str]

    def __init__(self, cluster: str, options: Mapping[str, str]) -> None:
        """Raise `ValueError` for an unknown option or an invalid time limit."""
        if unknown := options.keys() - self.known_options - {"bin", "timeout_seconds"}:
            raise ValueError(
                f"unknown options of the {self.name} adapter: {', '.join(sorted(unknown))}"
            )
        self.cluster = cluster
        self._options = {name: value for name, value in options.items() if value}
        self._seconds = float(self._options.get("timeout_seconds", 60))
        if not 0 < self._seconds <= 3600:
            raise ValueError("option timeout_seconds: from above 0 to 3600")

    def _commands_with(
        self, *, inherits: tuple[str, ...], most_bytes: int = 1 << 30, **variables: str
    ) -> Commands:
        """Return the commands with the `variables` that are not empty.

        The other arguments are those of `Commands`.
        """
        non_empty = {name: value for name, value in variables.items() if value}
        return Commands(
            self._options.get("bin", ""), self._seconds, most_bytes, inherits, non_empty
        )
