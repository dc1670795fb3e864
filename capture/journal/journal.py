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
from capture.wire.entry import CapturedJob

# Kept free on the disk: to delete what the portal has, SQLite writes first.
RESERVE_BYTES = 64 * 1024 * 1024

# How long to wait for the lock: a capture that was killed may still be writing its last batch.
_LOCK_SECONDS = 1.0
_COLUMNS = "last, jobs, captured_at, size_bytes, content"
# Free pages that stay in the file, for the next batches.
_KEPT_PAGES = 2048


class JournalError(Exception):
    """The journal cannot be used; the message says which and why."""


class JournaledBatch(NamedTuple):
    """A batch of packed jobs on its way to the portal.

    `last` is the number of its last job, which is the batch's place in its journal. `captured_at`
    is in microseconds since 1970, `journal` is the ID of the journal.
    """

    last: int
    jobs: int
    captured_at: int
    size_bytes: int
    content: bytes
    journal: str


class RefusedJobs(NamedTuple):
    """The number of jobs that the portal refused, and why it refused the newest of them."""

    jobs: int
    why: str


class Journal:
    """The journal in `directory`, held alone by one process. Safe to use from several threads."""

    def __init__(self, directory: Path, *, reserve_bytes: int = RESERVE_BYTES) -> None:
        """Open or create the journal, and queue what the portal refused again.

        Raises `JournalError` if another capture uses it, or if another version wrote it.
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
            # A journal restored from a copy would use the numbers of later batches again. Without
            # waiting batches, nothing depends on its ID.
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
        """Write the new jobs of a batch durably, as one batch; return their number.

        Known jobs change nothing. Raises `OSError` if the disk has no room: a journal that filled
        it could not even be emptied.
        """
        self._check_free_space(len(batch.content))
        with self._transaction() as database:
            new_positions = _note_sightings(database, batch.sightings)
            if new_positions:
                content = batch.content
                if len(new_positions) < len(batch.sightings):
                    jobs = unpack([content])
                    content = pack(jobs[position] for position in new_positions)
                last = _last(database) + len(new_positions)
                _insert(
                    database, last, len(new_positions), batch.captured_at, batch.size_bytes, content
                )
            return len(new_positions)

    def _check_free_space(self, size_bytes: int) -> None:
        """Raise `OSError` if this number of bytes cannot be added without using the reserve."""
        # SQLite writes first to its log, and then to the file, which may have free pages.
        free_in_file = self._count("freelist_count") * PAGE_BYTES
        growth = max(0, size_bytes - free_in_file)
        needed = size_bytes + growth + self._reserve_bytes

        disk = os.statvfs(self.directory)
        if disk.f_bavail * disk.f_frsize < needed:
            raise OSError(
                errno.ENOSPC,
                f"less than {needed:,} bytes free for the journal",
                str(self.directory),
            )

    def next(self) -> JournaledBatch | None:
        """Return the oldest batch that the portal lacks."""
        with self._guard:
            row = self._database.execute(
                f"SELECT {_COLUMNS} FROM batch WHERE refused = '' ORDER BY last LIMIT 1"
            ).fetchone()
        return JournaledBatch._make((*row, self.id)) if row else None

    def acknowledge(self, batch: JournaledBatch) -> None:
        """Delete a batch that the portal has stored."""
        with self._transaction() as database:
            database.execute("DELETE FROM batch WHERE last = ?", (batch.last,))
        self._shrink()

    def refuse(self, batch: JournaledBatch, why: str) -> None:
        """Set a batch aside that the portal refused; the next start queues it again."""
        with self._transaction() as database:
            database.execute("UPDATE batch SET refused = ? WHERE last = ?", (why, batch.last))

    def split(self, batch: JournaledBatch) -> None:
        """Replace a batch of several jobs by two batches of half as many."""
        jobs = unpack([batch.content])
        middle = len(jobs) // 2
        first_half = jobs[:middle]
        second_half = jobs[middle:]
        with self._transaction() as database:
            database.execute("DELETE FROM batch WHERE last = ?", (batch.last,))
            _insert_jobs(database, batch.last - len(second_half), first_half)
            _insert_jobs(database, batch.last, second_half)

    def renew_id(self) -> None:
        """Give the journal a new ID, so that the portal accepts numbers that were used before."""
        with self._transaction() as database:
            database.execute("UPDATE journal SET id = lower(hex(randomblob(16)))")
        self.id = self._read_id()

    def backlog(self) -> tuple[int, datetime | None]:
        """Return how many jobs the portal lacks, and when the oldest of them was captured."""
        with self._guard:
            jobs, oldest = self._database.execute(
                "SELECT coalesce(sum(jobs), 0), min(captured_at) FROM batch WHERE refused = ''"
            ).fetchone()
        if oldest is None:
            return jobs, None
        return jobs, moment_of(oldest)

    def size_bytes(self) -> int:
        """Return the size of the journal's files, including SQLite's log."""
        size_bytes = 0
        for path in self.directory.glob("journal.sqlite*"):
            with suppress(FileNotFoundError):
                size_bytes += path.stat().st_size
        return size_bytes

    def refused(self) -> RefusedJobs:
        with self._guard:
            rows = self._database.execute(
                "SELECT jobs, refused FROM batch WHERE refused <> '' ORDER BY last"
            ).fetchall()
        return RefusedJobs(sum(jobs for jobs, _ in rows), rows[-1][1] if rows else "")

    def known(self, cluster: str) -> dict[str, Identity]:
        """Return the newest captured entry of each job ID that the last scan saw in the spool."""
        with self._guard:
            rows = self._database.execute(
                "SELECT job_id, inode, modified_ns FROM seen WHERE cluster = ?"
                " ORDER BY submitted_at",
                (cluster,),
            )
            return {job_id: Identity(inode, modified_ns) for job_id, inode, modified_ns in rows}

    def forget(self, cluster: str, job_ids: Iterable[str]) -> None:
        """Drop what is known of spool entries that are gone from the spool."""
        with self._transaction() as database:
            database.executemany(
                "DELETE FROM seen WHERE cluster = ? AND job_id = ?",
                [(cluster, job_id) for job_id in job_ids],
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

    def _shrink(self) -> None:
        """Return the disk space that a long wait for the portal took."""
        surplus = self._count("freelist_count") - _KEPT_PAGES
        # With so many free pages, few used ones have to be moved.
        if surplus > self._count("page_count") // 2:
            with self._guard:
                # `execute` would do a single step, which frees one page.
                self._database.executescript(
                    f"PRAGMA incremental_vacuum({surplus}); PRAGMA wal_checkpoint(TRUNCATE)"
                )

    def _lock(self) -> None:
        end = time.monotonic() + _LOCK_SECONDS
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


def _note_sightings(database: sqlite3.Connection, sightings: Sequence[Sighting]) -> list[int]:
    """Store where jobs were seen; return the positions of the jobs that were not known."""
    query = "SELECT 1 FROM seen WHERE cluster = ? AND job_id = ? AND submitted_at = ?"
    new_positions: dict[tuple[str, str, int], int] = {}
    for position, sighting in enumerate(sightings):
        key = (sighting.cluster, sighting.job_id, sighting.submitted_at)
        if not database.execute(query, key).fetchone():
            new_positions.setdefault(key, position)
    database.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?, ?)", sightings)
    return list(new_positions.values())


def _last(database: sqlite3.Connection) -> int:
    """Return the number of the job that was added last; it may have been deleted since."""
    (last,) = database.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence").fetchone()
    return int(last)


def _insert_jobs(database: sqlite3.Connection, last: int, jobs: Sequence[CapturedJob]) -> None:
    """Insert a batch of these jobs; `last` is the number of the last one."""
    captured_at = microseconds(jobs[0].captured_at)
    size_bytes = sum(job.size_bytes for job in jobs)
    _insert(database, last, len(jobs), captured_at, size_bytes, pack(jobs))


def _insert(database: sqlite3.Connection, *values: object) -> None:
    """Insert a batch, given by the values of `_COLUMNS`."""
    database.execute(f"INSERT INTO batch ({_COLUMNS}) VALUES (?, ?, ?, ?, ?)", values)
