"""Asking a scheduler's own command: a list of words, never a shell; few variables; limits on time and on output."""

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

#: What every command keeps of the caller's variables: the others may be secrets, or options.
_KEPT = ("PATH", "HOME", "USER", "LOGNAME")
_CHUNK = 1 << 16
_MOST_SAID = 4_000


@dataclass(frozen=True)
class Asking:
    """How the commands of one cluster are run. `variables` come beside what is inherited: names of these beginnings."""

    directory: str = ""
    timeout_seconds: float = 60
    most_bytes: int = 1 << 30
    inherits: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    def output(self, program: str, *arguments: str) -> Iterator[bytes]:
        """Yield what `program` prints, piece by piece. Raises `SchedulerError`, also after the last piece."""
        command = [str(Path(self.directory) / program) if self.directory else program, *arguments]
        try:
            process = subprocess.Popen(
                command,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise SchedulerError(f"{program}: cannot be run: {error.strerror}") from error
        with process:
            try:
                yield from self._answer(program, process)
            except BaseException:  # also where nobody takes the rest
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # it, or what it has left behind
                raise

    def _answer(self, program: str, process: subprocess.Popen[bytes]) -> Iterator[bytes]:
        ends_at, said, size = time.monotonic() + self.timeout_seconds, b"", 0
        try:
            for stream, piece in _pieces(process, ends_at):
                if stream is process.stderr:
                    said += piece[: _MOST_SAID - len(said)]
                    continue
                size += len(piece)
                if size > self.most_bytes:
                    raise SchedulerError(f"{program}: more than {self.most_bytes:,} bytes of output")
                yield piece
            status = process.wait(timeout=max(0.0, ends_at - time.monotonic()))
        except (subprocess.TimeoutExpired, TimeoutError):
            raise SchedulerError(f"{program}: no answer within {self.timeout_seconds:g} s") from None
        if status:
            words = " ".join(said.decode(errors="replace").split())
            raise SchedulerError(f"{program}: {words or f'ended with status {status}'}")

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith(self.inherits)}
        return kept | {"LC_ALL": "C", "TZ": "UTC"} | dict(self.variables)


def _pieces(process: subprocess.Popen[bytes], ends_at: float) -> Iterator[tuple[IO[bytes], bytes]]:
    """Yield what comes on both streams until both are at their end. Raises `TimeoutError`."""
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


def asking_options(options: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Take those of the options that have a value. Raises `ValueError` for a time limit that is none."""
    given = {name: options[name] for name in names if options.get(name)}
    if "timeout_seconds" in given and not 0 < float(given["timeout_seconds"]) <= 3600:
        raise ValueError("option timeout_seconds: from above 0 to 3600")
    return given
