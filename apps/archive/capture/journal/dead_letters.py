"""What sinks have refused, read from the journal's file while capture may be running or not."""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from apps.archive.capture.journal.journal import JournalError
from apps.archive.capture.journal.schema import VERSION
from apps.archive.handover.batches import moment_of


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
