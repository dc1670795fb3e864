"""A schedd's spool: `job_queue.log` and spooled files. An entry is a cluster of jobs."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

from apps.clusters.schedulers.base import (
    EntryIncomplete,
    EntryUnreadable,
    EntryVanished,
    Identity,
    SpooledJob,
    SpoolEntry,
    SpoolError,
)
from apps.clusters.schedulers.environment import pack
from apps.clusters.schedulers.htcondor.classads import Ad, integer_of, text_of, value_of
from apps.clusters.schedulers.htcondor.description import describe, with_values
from apps.clusters.schedulers.htcondor.environment import variables_of
from apps.clusters.schedulers.htcondor.queue_log import JobCluster, JobQueueLog
from apps.clusters.schedulers.htcondor.script import find_script
from apps.clusters.schedulers.htcondor.slow_files import Patience
from apps.clusters.schedulers.user_files import NotReadable, read_as

MAX_FILE_BYTES = 64 * 1024 * 1024

_LOG = "job_queue.log"
_ENTRY = re.compile(r"cluster ([1-9][0-9]*)")
_HELD = 5
_SPOOLING = 16


class HTCondorSpool:
    """The spool at `directory`, the schedd's SPOOL on this host."""

    def __init__(self, directory: Path, *, max_file_bytes: int = MAX_FILE_BYTES) -> None:
        """Raise `SpoolError` if `directory` has no readable job queue."""
        self.directory = directory
        self.max_file_bytes = max_file_bytes
        self.patience = Patience()
        self._guard = Lock()
        self._listed = -1
        self._log = JobQueueLog(directory / _LOG)
        self._log.refresh()

    def watched(self) -> list[Path]:
        return [self.directory]

    def scan(self) -> Iterator[SpoolEntry]:
        """Yield the clusters in the queue and those that left it recently. Raises `SpoolError`."""
        with self._guard:
            self._log.refresh()
            self._listed = self._log.changes
            numbers = [*self._log.clusters, *self._log.destroyed]
        return (self._entry(number) for number in numbers)

    def entry_at(self, path: Path) -> SpoolEntry | None:
        """Return the cluster for an entry name from `scan`; no file has such a name."""
        match = _ENTRY.fullmatch(path.name)
        if not match or path.parent != self.directory:
            return None
        return self._entry(int(match[1]))

    def is_index(self, path: Path) -> bool:
        """Return whether `path` is the job queue log and its clusters have changed.

        Clusters are compared with the clusters of the last scan.
        """
        if path.name != _LOG or path.parent != self.directory:
            return False
        with self._guard:
            try:
                self._log.refresh()
            except SpoolError:
                return True
            # The next scan reports the error.
            return self._log.changes != self._listed

    def identity(self, entry: SpoolEntry) -> Identity:
        """Return cluster number and submission time: a recreated queue reuses numbers."""
        with self._guard:
            cluster = self._log.find(int(entry.job_id))
        if cluster:
            return Identity(cluster.number, cluster.submitted() * 10**9)
        return Identity(0, 0)

    def read(self, entry: SpoolEntry) -> SpooledJob:
        """Read a cluster from the queue, and its script from wherever it is."""
        with self._guard:
            self._log.refresh()
            number = int(entry.job_id)
            cluster = self._log.find(number)
            if cluster is None:
                raise EntryVanished(f"{entry.path}: no longer in the queue")
            is_there = number in self._log.clusters
            cluster = replace(cluster, common=dict(cluster.common), first=dict(cluster.first))
        ad = cluster.ad()
        if is_there:
            is_made_later = bool(value_of(cluster.common, "JobMaterializeDigestFile"))
            if cluster.submitted() <= 0 or (cluster.first_proc is None and not is_made_later):
                raise EntryIncomplete(f"{entry.path}: has no job yet")
            if (
                integer_of(ad, "JobStatus") == _HELD
                and integer_of(ad, "HoldReasonCode") == _SPOOLING
            ):
                raise EntryIncomplete(f"{entry.path}: its files are not spooled yet")
        return self._read(entry, cluster, ad)

    def with_environment(
        self, job: SpooledJob, variables: Iterable[tuple[bytes, bytes]]
    ) -> SpooledJob:
        """Return `job` with new values of variables, also in the description."""
        pairs = tuple(variables)
        return replace(
            job,
            environment=pack(pairs),
            description=with_values(job.description, job.variables, pairs),
        )

    def _entry(self, number: int) -> SpoolEntry:
        return SpoolEntry(job_id=str(number), path=self.directory / f"cluster {number}")

    def _read(self, entry: SpoolEntry, cluster: JobCluster, ad: Ad) -> SpooledJob:
        files = self._submit_files(cluster)
        if cluster.submitted() <= 0:
            raise EntryUnreadable(f"{entry.path}: it has no submission time (QDate)")
        try:
            submitted_at = datetime.fromtimestamp(cluster.submitted(), UTC)
        except (ValueError, OverflowError, OSError) as error:
            raise EntryUnreadable(f"{entry.path}: QDate is not a time: {error}") from error
        try:
            variables = variables_of(ad)
        except ValueError as error:
            raise EntryUnreadable(f"{entry.path}: {error}") from error
        script = find_script(
            self.directory,
            cluster.number,
            ad,
            max_bytes=self.max_file_bytes,
            patience=self.patience,
        )
        return SpooledJob(
            job_id=entry.job_id,
            submitted_at=submitted_at,
            script=script.content,
            environment=pack(variables),
            description=describe(cluster, files),
            arguments=text_of(ad, "Arguments") or text_of(ad, "Args"),
            user=text_of(ad, "Owner"),
            account=text_of(ad, "AccountingGroup"),
            name=text_of(ad, "JobBatchName"),
            caveat=script.caveat,
        )

    def _submit_files(self, cluster: JobCluster) -> dict[str, bytes]:
        """Return the submit description and item data.

        The schedd keeps both for late materialization.
        """
        if not value_of(cluster.common, "JobMaterializeDigestFile"):
            return {}
        directory = self.directory / str(cluster.number % 10_000)
        files = {}
        for kind in ("digest", "items"):
            name = f"condor_submit.{cluster.number}.{kind}"
            try:
                files[name], _ = read_as(None, directory / name, max_bytes=self.max_file_bytes)
            except NotReadable:
                continue
        # There is no item data if all jobs are alike.
        return files
