"""The durable queue between spool and portal: one SQLite file on the scheduler's host.

Once `add` returns, its jobs survive a kill and a power cut. A batch stays until the portal has it;
a captured job is remembered for as long as it is in the spool, so that no scan reads it again.
"""

import errno
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from apps.clusters.schedulers.base import Identity
from capture.journal.schema import PAGE_BYTES, OtherVersion, open_file
from capture.wire.batches import Batch, Sighting, microseconds, moment_of, pack, unpack

# Kept free on the disk: to delete what the portal has, SQLite writes first.
RESERVE_BYTES = 64 * 1024 * 1024

_PATIENCE_SECONDS = 1.0  # a capture that was killed may still be writing its last batch
_COLUMNS = "last, jobs, captured_at, size_bytes, content"
_KEPT_PAGES = 2048  # so many free ones stay in the file


class JournalError(Exception):
    """The journal cannot be used; the message says which and why."""


class JournaledBatch(NamedTuple):
    """Jobs on their way to the portal, packed.

    `last` is the number of the last: a batch's place in its journal.
    """

    last: int
    jobs: int
    captured_at: int
    size_bytes: int
    content: bytes
    journal: str


class Refused(NamedTuple):
    """Jobs that the portal does not take, and why, of the newest."""

    jobs: int
    why: str


class Journal:
    """The journal in `directory`, held alone by one process. Safe to use from several threads."""

    def __init__(self, directory: Path, *, reserve_bytes: int = RESERVE_BYTES) -> None:
        """Open or create it; what the portal refused is handed over again.

        Raises `JournalError` where another capture holds it, or it was written by another version.
        """
        self.directory = directory
        self._reserve_bytes = reserve_bytes
        self._guard = threading.Lock()
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock_file = os.open(
                directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise JournalError(f"{directory}: {error.strerror}") from error
        try:
            self._lock()
            self._database = open_file(directory / "journal.sqlite")
            self._renew_refused()
            self.id = self._read_id()
            # Nothing is in doubt. The numbers of a journal restored from a copy were used before.
            if self.next() is None:
                self.renew_id()
        except BaseException as error:
            os.close(self._lock_file)
            if isinstance(error, OtherVersion | sqlite3.Error):
                raise JournalError(f"{directory / 'journal.sqlite'}: {error}") from error
            raise

    def close(self) -> None:
        with self._guard:
            self._database.close()
            os.close(self._lock_file)

    def add(self, batch: Batch) -> int:
        """Write the jobs that are new, durably, as one.

        Returns how many were; known ones change nothing.

        Raises `OSError` where the disk has no room for them: a journal that filled it could not
        even be emptied.
        """
        size, disk = len(batch.content), os.statvfs(self.directory)
        # What is added is written to the log, and from there to the file, which may have room
        # inside.
        needed = (
            size + max(0, size - self._count("freelist_count") * PAGE_BYTES) + self._reserve_bytes
        )
        if disk.f_bavail * disk.f_frsize < needed:
            raise OSError(
                errno.ENOSPC,
                f"less than {needed:,} bytes free for the journal",
                str(self.directory),
            )
        with self._transaction() as database:
            new = _see(database, batch.sightings)
            if new:
                last = _last(database) + len(new)
                content = batch.content
                if len(new) < len(batch.sightings):
                    jobs = unpack([content])
                    content = pack(jobs[place] for place in new)
                _insert(database, last, len(new), batch.captured_at, batch.size_bytes, content)
            return len(new)

    def next(self) -> JournaledBatch | None:
        """Return the oldest batch that the portal lacks."""
        with self._guard:
            row = self._database.execute(
                f"SELECT {_COLUMNS} FROM batch WHERE refused = '' ORDER BY last LIMIT 1"
            ).fetchone()
        return JournaledBatch._make((*row, self.id)) if row else None

    def acknowledge(self, batch: JournaledBatch) -> None:
        """Drop what the portal has."""
        with self._transaction() as database:
            database.execute("DELETE FROM batch WHERE last = ?", (batch.last,))
        self._give_back()

    def refuse(self, batch: JournaledBatch, why: str) -> None:
        """Keep for the next start what the portal does not take."""
        with self._transaction() as database:
            database.execute("UPDATE batch SET refused = ? WHERE last = ?", (why, batch.last))

    def split(self, batch: JournaledBatch) -> None:
        """Make two of a batch of several jobs."""
        jobs = unpack([batch.content])
        middle = len(jobs) // 2
        with self._transaction() as database:
            database.execute("DELETE FROM batch WHERE last = ?", (batch.last,))
            for last, part in (
                (batch.last - len(jobs) + middle, jobs[:middle]),
                (batch.last, jobs[middle:]),
            ):
                size, captured_at = (
                    sum(job.size_bytes for job in part),
                    microseconds(part[0].captured_at),
                )
                _insert(database, last, len(part), captured_at, size, pack(part))

    def renew_id(self) -> None:
        """Become another journal to the portal, which then takes the same numbers again."""
        with self._transaction() as database:
            database.execute("UPDATE journal SET id = lower(hex(randomblob(16)))")
        self.id = self._read_id()

    def backlog(self) -> tuple[int, datetime | None]:
        """Return how many jobs the portal lacks, and when the oldest of them was captured."""
        with self._guard:
            (jobs, oldest) = self._database.execute(
                "SELECT coalesce(sum(jobs), 0), min(captured_at) FROM batch WHERE refused = ''"
            ).fetchone()
        return jobs, None if oldest is None else moment_of(oldest)

    def size_bytes(self) -> int:
        """Return the size of its files, also of what SQLite has not yet merged into the first."""
        size_bytes = 0
        for path in self.directory.glob("journal.sqlite*"):
            with suppress(FileNotFoundError):
                size_bytes += path.stat().st_size
        return size_bytes

    def refused(self) -> Refused:
        with self._guard:
            rows = self._database.execute(
                "SELECT jobs, refused FROM batch WHERE refused <> '' ORDER BY last"
            ).fetchall()
        return Refused(sum(jobs for jobs, _ in rows), rows[-1][1] if rows else "")

    def known(self, cluster: str) -> dict[str, Identity]:
        """Return the newest captured entry of each job ID that the last scan saw in the spool."""
        with self._guard:
            rows = self._database.execute(
                (
                    "SELECT job_id, inode, modified_ns FROM seen WHERE cluster = ? ORDER BY "
                    "submitted_at"
                ),
                (cluster,),
            )
            return {job_id: Identity(inode, modified_ns) for job_id, inode, modified_ns in rows}

    def forget(self, cluster: str, job_ids: Iterable[str]) -> None:
        """Drop what is known of spool entries that are gone from the spool."""
        with self._transaction() as database:
            database.executemany(
                "DELETE FROM seen WHERE cluster = ? AND job_id = ?", ((cluster, i) for i in job_ids)
            )

    def _read_id(self) -> str:
        with self._guard:
            return str(self._database.execute("SELECT id FROM journal").fetchone()[0])

    def _renew_refused(self) -> None:
        """Queue refused batches again under new numbers.

        The portal takes the batches of a journal in ascending order.
        """
        with self._transaction() as database:
            for batch in database.execute(
                f"SELECT {_COLUMNS} FROM batch WHERE refused <> '' ORDER BY last"
            ).fetchall():
                last, jobs, *columns = batch
                database.execute("DELETE FROM batch WHERE last = ?", (last,))
                _insert(database, _last(database) + jobs, jobs, *columns)

    def _count(self, pragma: str) -> int:
        with self._guard:
            return int(self._database.execute(f"PRAGMA {pragma}").fetchone()[0])

    def _give_back(self) -> None:
        """Give the disk back what a long wait for the portal has taken."""
        free, pages = self._count("freelist_count"), self._count("page_count")
        surplus = free - _KEPT_PAGES
        if surplus > pages // 2:  # then few pages have to be moved for it
            with self._guard:
                # `execute` would take one step only, which is one page.
                self._database.executescript(
                    f"PRAGMA incremental_vacuum({surplus}); PRAGMA wal_checkpoint(TRUNCATE)"
                )

    def _lock(self) -> None:
        end = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    holder = os.pread(self._lock_file, 20, 0).decode() or "unknown"
                    raise JournalError(
                        f"{self.directory}: in use by another capture, process {holder}"
                    ) from None
            time.sleep(0.02)
        os.ftruncate(self._lock_file, 0)
        os.pwrite(self._lock_file, str(os.getpid()).encode(), 0)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._guard:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise


def _see(database: sqlite3.Connection, sightings: Sequence[Sighting]) -> list[int]:
    """Note where jobs were seen, and return the places of those that were not known."""
    find = "SELECT 1 FROM seen WHERE cluster = ? AND job_id = ? AND submitted_at = ?"
    new: dict[Sequence[object], int] = {}
    for place, sighting in enumerate(sightings):
        key = sighting[:3]
        if not database.execute(find, key).fetchone():
            new.setdefault(key, place)
    database.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?, ?)", sightings)
    return list(new.values())


def _last(database: sqlite3.Connection) -> int:
    """Return the number of the job that was added last, whether it is still there or not."""
    (last,) = database.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence").fetchone()
    return int(last)


def _insert(database: sqlite3.Connection, *values: object) -> None:
    database.execute(f"INSERT INTO batch ({_COLUMNS}) VALUES (?, ?, ?, ?, ?)", values)
