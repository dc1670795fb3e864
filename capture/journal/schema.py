"""The SQLite file of the journal and its tables."""

import sqlite3
from pathlib import Path

PAGE_BYTES = 4096
VERSION = 6

# A batch is what was added at once, its jobs numbered up to `last`; `refused` is why the portal
# does not take it.
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE journal (id TEXT NOT NULL);
INSERT INTO journal VALUES (lower(hex(randomblob(16))));
CREATE TABLE seen (
    cluster TEXT NOT NULL,
    job_id TEXT NOT NULL,
    submitted_at INTEGER NOT NULL,
    inode INTEGER NOT NULL,
    modified_ns INTEGER NOT NULL,
    PRIMARY KEY (cluster, job_id, submitted_at)
) WITHOUT ROWID;
CREATE TABLE batch (
    last INTEGER PRIMARY KEY AUTOINCREMENT,
    jobs INTEGER NOT NULL,
    captured_at INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    refused TEXT NOT NULL DEFAULT '',
    content BLOB NOT NULL
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
