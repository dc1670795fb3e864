"""Torque's spool: `server_priv/jobs`, flat or in `0` to `9`, as pbs_server writes it.

An empty `.JB` reserves the name, the script grows in `.SC`, and then the `.JB` is saved. Every
change of state saves the `.JB` again by a swap, during which it is briefly absent. A script is
therefore complete if its `.JB`, or the `.TA` of an array, exists and is not empty. Only the `.SC`
identifies the job, because it is never rewritten.
"""

import os
import re
import time
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
from apps.clusters.schedulers.environment import pack
from apps.clusters.schedulers.files import DirectorySpool, opened_directory, read_file
from apps.clusters.schedulers.torque.description import (
    BadDescription,
    Description,
    read_description,
    with_variables,
    without_secrets_of_torque,
)
from apps.clusters.schedulers.torque.records import read_time

# How long to wait for a description before the script is captured without it.
ALONE_SECONDS = 60.0
MAX_DESCRIPTION_BYTES = 8 * 1024 * 1024

_SCRIPT = re.compile(r"(?P<number>[0-9]+)(?P<server>(?:\.[A-Za-z0-9_.:-]+)?)\.SC")
_EMPTY = Description(attributes={}, variables=(), is_incoming=False)


class TorqueSpool(DirectorySpool):
    """The spool at `directory`, `$TORQUE_HOME/server_priv/jobs` on this host.

    Its layout may change while it is open.
    """

    scheduler = "Torque"
    subdirectory = re.compile(r"[0-9]")

    def __init__(self, directory: Path, *, alone_seconds: float = ALONE_SECONDS) -> None:
        self.alone_seconds = alone_seconds
        self._alone_since: dict[Path, float] = {}
        # Remembering arrays keeps their IDs stable while a `.TA` is swapped.
        self._arrays: set[Path] = set()
        super().__init__(directory)

    def scanned(self) -> Iterator[tuple[str, ...]]:
        return iter([(), *((name,) for name in self._subdirectories())])

    def listed(self, directory: Path, names: Collection[str]) -> Iterator[SpoolEntry]:
        self._arrays -= {
            path for path in self._arrays if path.parent == directory and path.name not in names
        }
        for script in filter(None, map(_SCRIPT.fullmatch, names)):
            path = directory / script[0]
            if f"{script[0][:-3]}.TA" in names:
                self._arrays.add(path)
            yield SpoolEntry(_job_id(script, is_array=path in self._arrays), path)

    def entry_at(self, path: Path) -> SpoolEntry | None:
        """Return the entry of a script.

        Events of a `.JB` are ignored: incomplete entries are retried.
        """
        script = _SCRIPT.fullmatch(path.name)
        if not script or self._names_to(path.parent) is None:
            return None
        if os.path.lexists(path.with_suffix(".TA")):
            self._arrays.add(path)
        return SpoolEntry(_job_id(script, is_array=path in self._arrays), path)

    def read(self, entry: SpoolEntry) -> SpooledJob:
        """Read the description, then the script, which is complete once there is a description."""
        script = _SCRIPT.fullmatch(entry.path.name)
        names = self._names_to(entry.path.parent)
        if script is None or names is None:
            raise EntryUnreadable(f"{entry.path}: not a job of {self.directory}")
        with opened_directory(self.directory, *names) as directory:
            suffix, content = self._read_description(directory, entry.path)
            text, written_at = read_file(directory, entry.path)
        self._alone_since.pop(entry.path, None)
        if suffix == ".TA":
            self._arrays.add(entry.path)
        job_id = _job_id(script, is_array=entry.path in self._arrays)
        if not suffix:
            return _described(
                job_id, text, written_at, _EMPTY, caveat="Torque kept no description of this job."
            )
        try:
            description = read_description(content)
        except BadDescription:
            # Left out, because secrets in it cannot be masked.
            return _described(
                job_id, text, written_at, _EMPTY, caveat=f"Its {suffix} is not the XML of a job."
            )
        if description.is_incoming:
            raise EntryIncomplete(f"{entry.path}: still being received")
        return _described(
            job_id, text, written_at, description, content=without_secrets_of_torque(content)
        )

    def with_environment(
        self, job: SpooledJob, variables: Iterable[tuple[bytes, bytes]]
    ) -> SpooledJob:
        """Return `job` with new variables, also in its description."""
        pairs = tuple(variables)
        if pairs == job.variables:
            return job
        description = with_variables(job.description, pairs)
        return replace(job, environment=pack(pairs), description=description)

    def _names_to(self, directory: Path) -> tuple[str, ...] | None:
        if directory == self.directory:
            return ()
        is_ours = directory.parent == self.directory and self.subdirectory.fullmatch(directory.name)
        return (directory.name,) if is_ours else None

    def _read_description(self, directory: int, script: Path) -> tuple[str, bytes]:
        """Return suffix and content of the description; both empty if it stays missing."""
        for suffix in (".TA", ".JB"):
            try:
                content, _ = read_file(
                    directory, script.with_suffix(suffix), max_bytes=MAX_DESCRIPTION_BYTES
                )
            except EntryVanished:
                continue
            if content:
                return suffix, content
            break
        else:
            since = self._alone_since.setdefault(script, time.monotonic())
            if time.monotonic() - since >= self.alone_seconds:
                return "", b""
        if not os.path.lexists(script):
            self._alone_since.pop(script, None)
            raise EntryVanished(f"{script}: removed by the scheduler")
        raise EntryIncomplete(f"{script}: not described yet")


def _job_id(script: re.Match[str], *, is_array: bool) -> str:
    """Return the ID as Torque writes it, with empty brackets for an array."""
    return f"{script['number']}{'[]' if is_array else ''}{script['server']}"


def _described(
    job_id: str,
    script: bytes,
    written_at: datetime,
    description: Description,
    *,
    content: bytes = b"",
    caveat: str = "",
) -> SpooledJob:
    attributes = description.attributes
    return SpooledJob(
        job_id=job_id,
        # The creation time never changes; the queue time changes when the job is moved.
        submitted_at=read_time(attributes.get("ctime", "")) or written_at,
        script=script,
        environment=pack(description.variables),
        description=content,
        arguments=attributes.get("submit_args", ""),
        user=attributes.get("Job_Owner", "").partition("@")[0],
        account=attributes.get("Account_Name", ""),
        name=attributes.get("Job_Name", ""),
        caveat=caveat,
    )
