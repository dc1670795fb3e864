"""The durable queue between spool and sinks: one SQLite file on the scheduler's host.

What `add` returned from survives a kill and a power cut. An entry stays until every sink has it; that it was
captured stays known for as long as it is in the spool, so that no scan reads it again.
"""

import errno
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from apps.archive.capture.journal.schema import PAGE_BYTES, VERSION, OtherVersion, open_file
from apps.archive.wire.batches import BATCH_JOBS, Batch, PackedJobs, Sighting, microseconds, moment_of, pack, unpack
from apps.archive.wire.entry import CapturedJob
from apps.clusters.schedulers.base import Identity

BATCH_BYTES = 3 * 1024 * 1024
RESERVE_BYTES = 64 * 1024 * 1024  # kept free on the disk: to drop what sinks have, SQLite writes first

_PATIENCE_SECONDS = 1.0  # a capture that was killed may still be writing its last batch
_NOW = "CAST(strftime('%s') AS INTEGER)"
_KEPT_PAGES = 2048  # so many free ones stay in the file


class JournalError(Exception):
    """The journal cannot be used; the message says which and why."""


class JournalEntry(NamedTuple):
    """A captured job and its place in the journal."""

    seq: int
    job: CapturedJob


class Entries:
    """Consecutive entries, packed until one is looked at."""

    def __init__(self, numbers: Sequence[int], jobs: PackedJobs) -> None:
        self.numbers = numbers
        self.jobs = jobs

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> JournalEntry:
        return JournalEntry(self.numbers[index], self.jobs[index])


class Journal:
    """The journal in `directory`, held alone by one process. Safe to use from several threads."""

    def __init__(self, directory: Path, *, sinks: Sequence[str], reserve_bytes: int = RESERVE_BYTES) -> None:
        """Open or create it. A sink that is new here starts with the entries that are still kept.

        Raises `JournalError` where another capture holds it, or it was written by another version.
        """
        self.directory = directory
        self._sinks = frozenset(sinks)
        self._reserve_bytes = reserve_bytes
        self._guard = threading.Lock()
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock_file = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise JournalError(f"{directory}: {error.strerror}") from error
        try:
            self._lock()
            self._database = open_file(directory / "journal.sqlite")
            with self._transaction() as database:
                for name in sinks:
                    database.execute(
                        "INSERT OR IGNORE INTO sink SELECT ?, coalesce("
                        "(SELECT min(acknowledged) FROM sink), (SELECT min(last - jobs) FROM batch), ?)",
                        (name, _last(database)),
                    )
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
        """Write the jobs that are new, durably, as one. Returns how many were; known ones change nothing.

        Raises `OSError` where the disk has no room for them: a journal that filled it could not even be emptied.
        """
        size, disk = len(batch.content), os.statvfs(self.directory)
        # What is added is written to the log, and from there to the file, which may have room inside.
        needed = size + max(0, size - self._count("freelist_count") * PAGE_BYTES) + self._reserve_bytes
        if disk.f_bavail * disk.f_frsize < needed:
            raise OSError(errno.ENOSPC, f"less than {needed:,} bytes free for the journal", str(self.directory))
        with self._transaction() as database:
            new = _see(database, batch.sightings)
            if new:
                last = _last(database) + len(new)
                content = batch.content
                if len(new) < len(batch.sightings):
                    jobs = unpack([content])
                    content = pack(jobs[place] for place in new)
                values = last, len(new), batch.captured_at, batch.size_bytes, content
                database.execute("INSERT INTO batch VALUES (?, ?, ?, ?, ?)", values)
            return len(new)

    def pending(self, sink: str, *, after: int = 0, jobs: int = BATCH_JOBS, size_bytes: int = BATCH_BYTES) -> Entries:
        """Return the next batches, one at least if there is one, with what `sink` has not acknowledged of them.

        Those behind `after` are given out to one who has the others before they are acknowledged.
        """
        with self._guard:
            (acknowledged,) = self._database.execute("SELECT acknowledged FROM sink WHERE name = ?", (sink,)).fetchone()
            after = max(after, acknowledged)
            rows = self._database.execute(
                "SELECT last, jobs, size_bytes, content FROM batch WHERE last > ? ORDER BY last", (after,)
            )
            found: list[tuple[int, int, bytes]] = []
            for last, count, size, content in rows:
                jobs, size_bytes = jobs - count, size_bytes - size
                if found and (jobs < 0 or size_bytes < 0):
                    break
                found.append((last, count, content))
            rows.close()
        return _entries(found, after=after)

    def acknowledge(self, sink: str, seq: int) -> None:
        """Note that `sink` has, or has refused, every entry up to `seq`; drop what every sink has."""
        with self._transaction() as database:
            database.execute("UPDATE sink SET acknowledged = max(acknowledged, ?) WHERE name = ?", (seq, sink))
            _drop(database)
        self._give_back()

    def refuse(self, sink: str, entry: JournalEntry, reason: str) -> None:
        """Keep an entry that `sink` cannot take, whatever the others do, with the reason, and when that was."""
        job = entry.job
        key = job.cluster, job.job_id, microseconds(job.submitted_at)
        with self._transaction() as database:
            database.execute(
                f"INSERT OR REPLACE INTO refusal VALUES (?, ?, ?, ?, ?, ?, ?, ?, {_NOW})",
                (sink, entry.seq, reason, *key, job.size_bytes, pack([job])),
            )

    def refused(
        self, sink: str, *, after: int = 0, size_bytes: int = BATCH_BYTES, rested_seconds: int = 0
    ) -> list[tuple[JournalEntry, str]]:
        """Return the next entries behind `after` that `sink` could not take, with the reasons; one at least.

        Those refused within `rested_seconds` are left out.
        """
        found: list[tuple[JournalEntry, str]] = []
        with self._guard:
            rows = self._database.execute(
                "SELECT seq, reason, size_bytes, content FROM refusal"
                f" WHERE sink = ? AND seq > ? AND abs({_NOW} - tried_at) >= ? ORDER BY seq LIMIT ?",
                (sink, after, rested_seconds, BATCH_JOBS),
            )
            for seq, reason, size, content in rows:
                size_bytes -= size
                if found and size_bytes < 0:
                    break
                found.append((JournalEntry(seq, unpack([content])[0]), reason))
            rows.close()
        return found

    def refusals(self, sink: str, *, newest: int) -> tuple[int, list[tuple[str, str]]]:
        """Return how many entries `sink` could not take, and job id and reason of the newest."""
        with self._guard:
            (count,) = self._database.execute("SELECT count(*) FROM refusal WHERE sink = ?", (sink,)).fetchone()
            rows = self._database.execute(
                "SELECT job_id, reason FROM refusal WHERE sink = ? ORDER BY seq DESC LIMIT ?", (sink, newest)
            )
            return count, rows.fetchall()

    def accept(self, sink: str, seq: int) -> None:
        with self._transaction() as database:
            database.execute("DELETE FROM refusal WHERE sink = ? AND seq = ?", (sink, seq))

    def retired(self) -> list[str]:
        """Return the sinks that the journal still keeps entries for and that were not given now."""
        with self._guard:
            rows = self._database.execute("SELECT name FROM sink ORDER BY name").fetchall()
        return [name for (name,) in rows if name not in self._sinks]

    def forget_sink(self, name: str) -> tuple[int, int]:
        """Give up for good what a retired sink lacks and has refused; return how many. Raises `JournalError`."""
        if name not in self.retired():
            known = ", ".join(self.retired()) or "none"
            raise JournalError(f"{name!r} is none of the sinks that are no longer given: {known}")
        given_up = self.backlog(name)[0], self.refusals(name, newest=0)[0]
        with self._transaction() as database:
            database.execute("DELETE FROM sink WHERE name = ?", (name,))
            database.execute("DELETE FROM refusal WHERE sink = ?", (name,))
            _drop(database)
        self._give_back()
        return given_up

    def backlog(self, sink: str) -> tuple[int, datetime | None]:
        """Return how many entries `sink` still lacks, and when the oldest of them was captured."""
        with self._guard:
            (acknowledged,) = self._database.execute("SELECT acknowledged FROM sink WHERE name = ?", (sink,)).fetchone()
            last = _last(self._database)
            oldest = self._database.execute(
                "SELECT captured_at FROM batch WHERE last > ? ORDER BY last LIMIT 1", (acknowledged,)
            ).fetchone()
        return max(0, last - acknowledged), moment_of(oldest[0]) if oldest else None

    def known(self, cluster: str) -> dict[str, Identity]:
        """Return the newest captured spool entry of each job id that was in the spool when last looked."""
        with self._guard:
            rows = self._database.execute(
                "SELECT job_id, inode, modified_ns FROM seen WHERE cluster = ? ORDER BY submitted_at", (cluster,)
            )
            return {job_id: Identity(inode, modified_ns) for job_id, inode, modified_ns in rows}

    def forget(self, cluster: str, job_ids: Iterable[str]) -> None:
        """Drop what is known of spool entries that are gone from the spool."""
        with self._transaction() as database:
            database.executemany("DELETE FROM seen WHERE cluster = ? AND job_id = ?", ((cluster, i) for i in job_ids))

    def _count(self, pragma: str) -> int:
        with self._guard:
            return int(self._database.execute(f"PRAGMA {pragma}").fetchone()[0])

    def _give_back(self) -> None:
        """Give the disk back what a long wait for the sinks has taken."""
        free, pages = self._count("freelist_count"), self._count("page_count")
        surplus = free - _KEPT_PAGES
        if surplus > pages // 2:  # then few pages have to be moved for it
            with self._guard:
                # `execute` would take one step only, which is one page.
                self._database.executescript(f"PRAGMA incremental_vacuum({surplus}); PRAGMA wal_checkpoint(TRUNCATE)")

    def _lock(self) -> None:
        end = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    holder = os.pread(self._lock_file, 20, 0).decode() or "unknown"
                    raise JournalError(f"{self.directory}: in use by another capture, process {holder}") from None
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


def _entries(found: Sequence[tuple[int, int, bytes]], *, after: int) -> Entries:
    """Return the entries behind `after` of batches, each given by its last number, its jobs and their content."""
    numbers = [number for last, count, _ in found for number in range(last - count + 1, last + 1) if number > after]
    pieces = [content for _, _, content in found]
    known = sum(count for _, count, _ in found) - len(numbers)
    if known:  # by sinks that were given a part of the first
        pieces[0] = pack(unpack(pieces[:1])[known:])
    return Entries(numbers, PackedJobs(pieces, len(numbers)))


def _last(database: sqlite3.Connection) -> int:
    """Return the number of the entry that was added last, whether it is still there or not."""
    (last,) = database.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence").fetchone()
    return int(last)


def _drop(database: sqlite3.Connection) -> None:
    database.execute("DELETE FROM batch WHERE last <= (SELECT min(acknowledged) FROM sink)")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A job that a sink does not take. The journal keeps it until it is taken after all, or dropped."""

    sink: str
    cluster: str
    job_id: str
    submitted_at: datetime
    size_bytes: int
    reason: str


class DeadLetters:
    """Those of the journal in `directory`."""

    def __init__(self, directory: Path) -> None:
        """Raises `JournalError` where there is no journal of this version."""
        path = directory / "journal.sqlite"
        if not path.is_file():
            raise JournalError(f"{path}: there is no journal")
        self._database = sqlite3.connect(path, isolation_level=None, timeout=30)
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        if version != VERSION:
            raise JournalError(f"{path}: written by another version of the portal ({version}, not {VERSION})")

    def close(self) -> None:
        self._database.close()

    def __iter__(self) -> Iterator[DeadLetter]:
        rows = self._database.execute(
            "SELECT sink, cluster, job_id, submitted_at, size_bytes, reason FROM refusal ORDER BY sink, seq"
        )
        for sink, cluster, job_id, submitted_at, size_bytes, reason in rows:
            yield DeadLetter(sink, cluster, job_id, moment_of(submitted_at), size_bytes, reason)

    def drop(self, *, sink: str = "", job_id: str = "") -> int:
        """Give up what this sink refused, and of this job; empty: of all. Returns how many. Other sinks keep theirs."""
        with closing(self._database.cursor()) as cursor:
            cursor.execute(
                "DELETE FROM refusal WHERE (?1 = '' OR sink = ?1) AND (?2 = '' OR job_id = ?2)", (sink, job_id)
            )
            return cursor.rowcount


def running_capture(directory: Path) -> int | None:
    """Return the process that holds the journal in `directory`, or None where none does."""
    try:
        lock = os.open(directory / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return int(os.pread(lock, 20, 0))
    finally:
        os.close(lock)
    return None
