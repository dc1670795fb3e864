"""The file of the journal and its tables."""

import sqlite3
from pathlib import Path

PAGE_BYTES = 4096
VERSION = 5

# A batch is what was added at once, its jobs numbered up to `last`. What a sink refuses is kept beside them.
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE seen (
    cluster TEXT NOT NULL,
    job_id TEXT NOT NULL,
    submitted_at INTEGER NOT NULL,
    inode INTEGER NOT NULL,
    modified_ns INTEGER NOT NULL,
    PRIMARY KEY (cluster, job_id, submitted_at)
) WITHOUT ROWID;
CREATE TABLE sink (name TEXT PRIMARY KEY, acknowledged INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE batch (
    last INTEGER PRIMARY KEY AUTOINCREMENT,
    jobs INTEGER NOT NULL,
    captured_at INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    content BLOB NOT NULL
);
CREATE TABLE refusal (
    sink TEXT NOT NULL,
    seq INTEGER NOT NULL,
    reason TEXT NOT NULL,
    cluster TEXT NOT NULL,
    job_id TEXT NOT NULL,
    submitted_at INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    content BLOB NOT NULL,
    tried_at INTEGER NOT NULL,
    PRIMARY KEY (sink, seq)
);
PRAGMA user_version = {VERSION};
COMMIT;
"""


class OtherVersion(Exception):
    """The file was written by another version of the portal."""


def open_file(path: Path) -> sqlite3.Connection:
    """Open or create the journal's file. Raises `OtherVersion` and `sqlite3.Error`."""
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    path.chmod(0o600)
    database.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    database.execute("PRAGMA auto_vacuum = INCREMENTAL")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("PRAGMA wal_autocheckpoint = 4000")
    database.execute("PRAGMA journal_size_limit = 67108864")
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version == 0:
        database.executescript(_SCHEMA)
    elif version != VERSION:
        raise OtherVersion(f"written by another version of the portal ({version}, not {VERSION})")
    return database
