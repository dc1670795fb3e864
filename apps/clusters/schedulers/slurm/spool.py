"""Slurm's spool: StateSaveLocation/hash.N/job.ID/{environment,script}, as slurmctld writes it.

The files appear under their final names and grow in place, so each is read whole and judged by its own format:
a script is complete when its last byte is NUL, an environment when it holds as many NULs as its count says.
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from apps.clusters.schedulers.base import (
    EntryIncomplete,
    EntryUnreadable,
    EntryVanished,
    Identity,
    SpooledJob,
    SpoolEntry,
    SpoolError,
    identity_of,
)
from apps.clusters.schedulers.environment import COUNT, count_of, texts_in
from apps.clusters.schedulers.files import MAX_FILE_BYTES, opened_directory, read_file_in, subdirectories

_HASH_DIRECTORY = re.compile(r"hash\.[0-9]")
_JOB_DIRECTORY = re.compile(r"job\.([1-9][0-9]*)")
_EVENT = re.compile(r"(hash\.[0-9]/job\.([1-9][0-9]*))(/(?:script|environment))?")


class SlurmSpool:
    """The spool at `directory`, slurmctld's StateSaveLocation, on this host."""

    def __init__(self, directory: Path, *, max_file_bytes: int = MAX_FILE_BYTES) -> None:
        """Raises `SpoolError` where `directory` is none, or may not be read."""
        self.directory = directory
        self.max_file_bytes = max_file_bytes
        self._prefix = f"{directory}/"
        try:
            os.listdir(directory)
        except OSError as error:
            raise SpoolError(f"{directory}: no Slurm spool: {error.strerror}") from error

    def watched(self) -> list[Path]:
        """Return the root and every `hash.N` there is; Slurm makes each when the first job needs it."""
        return [self.directory, *(self.directory / name for name in self._hash_directories())]

    def scan(self) -> Iterator[SpoolEntry]:
        """List every job entry. Raises `SpoolError` at the end, after all that could be listed.

        What has the name of a `hash.N` and is no directory, such as a symlink, could not: jobs may be behind it.
        """
        failures = []
        for name in self._hash_directories(whatever=True):
            try:
                names = self._list_hash_directory(name)
            except EntryVanished:
                continue
            except SpoolError as error:
                failures.append(str(error))
                continue
            for job in filter(None, map(_JOB_DIRECTORY.fullmatch, names)):
                yield SpoolEntry(job_id=job[1], path=self.directory / name / job[0])
        if failures:
            raise SpoolError("; ".join(failures))

    def entry_at(self, path: Path) -> SpoolEntry | None:
        """Return the entry of a job directory, or of a file in it."""
        text = str(path)  # asked for each event: made of text, which is quicker than of paths
        found = _EVENT.fullmatch(text, len(self._prefix)) if text.startswith(self._prefix) else None
        if not found:
            return None
        return SpoolEntry(job_id=found[2], path=path.parent if found[3] else path)

    def is_index(self, path: Path) -> bool:
        """Slurm has no list of jobs beside their directories."""
        return False

    def identity(self, entry: SpoolEntry) -> Identity:
        """Return inode and modification time of the job's directory."""
        return identity_of(entry.path)

    def read(self, entry: SpoolEntry) -> SpooledJob:
        """Read script and environment into memory; both come from one and the same directory."""
        root, hash_directory, job_directory = str(entry.path).rsplit("/", 2)
        is_job = _HASH_DIRECTORY.fullmatch(hash_directory) and job_directory == f"job.{entry.job_id}"
        if f"{root}/" != self._prefix or not is_job:
            raise EntryUnreadable(f"{entry.path}: not a job of {self.directory}")
        with opened_directory(self.directory, hash_directory, job_directory) as directory:
            environment, _ = self._read_file(directory, entry.path, "environment")
            script, submitted_at = self._read_file(directory, entry.path, "script")
        if not script.endswith(b"\0"):
            raise EntryIncomplete(f"{entry.path}/script: not written to its end yet")
        _check_whole(environment, entry.path)
        return SpooledJob(job_id=entry.job_id, submitted_at=submitted_at, script=script[:-1], environment=environment)

    def with_environment(self, job: SpooledJob, variables: Iterable[tuple[bytes, bytes]]) -> SpooledJob:
        """Return `job` with other variables. An entry that was there without `=` stays without."""
        pairs = tuple(variables)
        bare = {text for text in texts_in(job.environment) if b"=" not in text}
        texts = [name if name in bare and not value else name + b"=" + value for name, value in pairs]
        if any(b"\0" in text for text in texts):
            raise ValueError("a variable holds a NUL")
        return replace(job, environment=COUNT.pack(len(texts)) + b"".join(text + b"\0" for text in texts))

    def _hash_directories(self, *, whatever: bool = False) -> list[str]:
        try:
            if whatever:
                return sorted(filter(_HASH_DIRECTORY.fullmatch, os.listdir(self.directory)))
            return subdirectories(self.directory, _HASH_DIRECTORY)
        except OSError as error:
            raise SpoolError(f"{self.directory}: {error.strerror}") from error

    def _list_hash_directory(self, name: str) -> list[str]:
        with opened_directory(self.directory, name) as directory:
            return os.listdir(directory)

    def _read_file(self, directory: int, parent: Path, name: str) -> tuple[bytes, datetime]:
        """Return the bytes of a file in an open job directory, and its modification time."""
        try:
            return read_file_in(directory, parent, name, max_bytes=self.max_file_bytes)
        except EntryVanished as error:
            if os.fstat(directory).st_nlink == 0:
                raise
            raise EntryIncomplete(f"{parent / name}: not there yet") from error


def _check_whole(environment: bytes, job_directory: Path) -> None:
    if len(environment) < COUNT.size:
        raise EntryIncomplete(f"{job_directory}/environment: its count is not written yet")
    count, written = count_of(environment), environment.count(b"\0", COUNT.size)
    if written < count:
        raise EntryIncomplete(f"{job_directory}/environment: {written} of {count} variables written")
