"""Slurm's spool: StateSaveLocation/hash.N/job.ID/{environment,script}, as slurmctld writes it.

Files grow in place under their final names; their format shows whether they are complete. A script
ends with a NUL, and an environment has as many NULs as its count says.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from apps.clusters.schedulers.base import (
    EntryIncomplete,
    EntryUnreadable,
    EntryVanished,
    SpooledJob,
    SpoolEntry,
)
from apps.clusters.schedulers.environment import COUNT, count_of, pack_texts, texts_in
from apps.clusters.schedulers.files import (
    MAX_FILE_BYTES,
    DirectorySpool,
    opened_directory,
    read_file,
)

_JOB_DIRECTORY = re.compile(r"job\.([1-9][0-9]*)")
_EVENT = re.compile(r"(hash\.[0-9]/job\.([1-9][0-9]*))(/(?:script|environment))?")


class SlurmSpool(DirectorySpool):
    """The spool at `directory`, slurmctld's StateSaveLocation on this host."""

    scheduler = "Slurm"
    subdirectory = re.compile(r"hash\.[0-9]")

    def __init__(self, directory: Path, *, max_file_bytes: int = MAX_FILE_BYTES) -> None:
        super().__init__(directory)
        self.max_file_bytes = max_file_bytes
        self._prefix = f"{directory}/"

    def scanned(self) -> Iterator[tuple[str, ...]]:
        """Return every `hash.N`; those that are not directories are included to be reported."""
        return ((name,) for name in self._subdirectories(any_type=True))

    def listed(self, directory: Path, names: Collection[str]) -> Iterator[SpoolEntry]:
        for job in filter(None, map(_JOB_DIRECTORY.fullmatch, names)):
            yield SpoolEntry(job_id=job[1], path=directory / job[0])

    def entry_at(self, path: Path) -> SpoolEntry | None:
        # Called for every event: text is faster than paths.
        text = str(path)
        match = None
        if text.startswith(self._prefix):
            match = _EVENT.fullmatch(text, len(self._prefix))
        if not match:
            return None
        return SpoolEntry(job_id=match[2], path=path.parent if match[3] else path)

    def read(self, entry: SpoolEntry) -> SpooledJob:
        """Read script and environment from the same open directory."""
        root, hash_directory, job_directory = str(entry.path).rsplit("/", 2)
        is_job = (
            self.subdirectory.fullmatch(hash_directory) and job_directory == f"job.{entry.job_id}"
        )
        if f"{root}/" != self._prefix or not is_job:
            raise EntryUnreadable(f"{entry.path}: not a job of {self.directory}")
        with opened_directory(self.directory, hash_directory, job_directory) as directory:
            environment, _ = self._read_file(directory, entry.path, "environment")
            script, submitted_at = self._read_file(directory, entry.path, "script")
        if not script.endswith(b"\0"):
            raise EntryIncomplete(f"{entry.path}/script: not completely written yet")
        if len(environment) < COUNT.size:
            raise EntryIncomplete(f"{entry.path}/environment: the count is not written yet")
        count = count_of(environment)
        written = environment.count(b"\0", COUNT.size)
        if written < count:
            raise EntryIncomplete(
                f"{entry.path}/environment: {written} of {count} variables written"
            )
        return SpooledJob(
            job_id=entry.job_id,
            submitted_at=submitted_at,
            script=script[:-1],
            environment=environment,
        )

    def with_environment(
        self, job: SpooledJob, variables: Iterable[tuple[bytes, bytes]]
    ) -> SpooledJob:
        """Return `job` with new variables; an entry without `=` keeps its form."""
        bare = {text for text in texts_in(job.environment) if b"=" not in text}
        texts = []
        for name, value in variables:
            texts.append(name if name in bare and not value else name + b"=" + value)
        return replace(job, environment=pack_texts(texts))

    def _read_file(self, directory: int, parent: Path, name: str) -> tuple[bytes, datetime]:
        try:
            return read_file(directory, f"{parent}/{name}", max_bytes=self.max_file_bytes)
        except EntryVanished as error:
            if os.fstat(directory).st_nlink == 0:
                raise
            raise EntryIncomplete(f"{parent / name}: does not exist yet") from error
