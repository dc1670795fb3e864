"""The file of the journal: its tables, how they come from those of earlier versions, and the form of its rows."""

import json
import sqlite3
import struct
import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from zstandard import ZstdCompressor, ZstdDecompressor

from apps.archive.capture.entry import CapturedJob

PAGE_BYTES = 4096
VERSION = 3
COLUMNS = "cluster, job_id, submitted_at, captured_at, size_bytes, facts, content"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FACTS = ("scheduler", "request_key", "stage", "masked_names", "arguments", "user", "account", "name", "caveat")
_LENGTHS = struct.Struct("<QQ")  # of script and environment; the description is the rest
_SCHEMA = """
CREATE TABLE entry (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    cluster TEXT NOT NULL,
    job_id TEXT NOT NULL,
    submitted_at INTEGER NOT NULL,
    captured_at INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    facts TEXT NOT NULL,
    content BLOB NOT NULL,
    UNIQUE (cluster, job_id, submitted_at)
);
CREATE TABLE seen (
    cluster TEXT NOT NULL,
    job_id TEXT NOT NULL,
    submitted_at INTEGER NOT NULL,
    inode INTEGER NOT NULL,
    modified_ns INTEGER NOT NULL,
    PRIMARY KEY (cluster, job_id, submitted_at)
) WITHOUT ROWID;
CREATE TABLE sink (name TEXT PRIMARY KEY, acknowledged INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE refused (
    sink TEXT NOT NULL,
    seq INTEGER NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (sink, seq)
) WITHOUT ROWID;
"""
_CHANGES = {
    0: _SCHEMA,
    1: """
ALTER TABLE entry ADD COLUMN facts TEXT NOT NULL DEFAULT '{}';
ALTER TABLE entry ADD COLUMN description BLOB NOT NULL DEFAULT x'';
UPDATE entry SET facts = json_object('scheduler', scheduler, 'request_key', request_key, 'stage', stage,
    'masked_names', json(masked_names));
ALTER TABLE entry DROP COLUMN scheduler;
ALTER TABLE entry DROP COLUMN request_key;
ALTER TABLE entry DROP COLUMN stage;
ALTER TABLE entry DROP COLUMN masked_names;
""",
    2: """
ALTER TABLE entry ADD COLUMN content BLOB NOT NULL DEFAULT x'';
UPDATE entry SET content = pack(script, environment, description);
ALTER TABLE entry DROP COLUMN script;
ALTER TABLE entry DROP COLUMN environment;
ALTER TABLE entry DROP COLUMN description;
""",
}
_compressor = ZstdCompressor(level=1)
_decompressor = ZstdDecompressor()
_one_at_a_time = threading.Lock()  # neither may be used by two threads at once


class NewerJournal(Exception):
    """The file was written by a newer version of the portal."""


def open_file(path: Path) -> sqlite3.Connection:
    """Open or create it, and bring it to the newest version. Raises `NewerJournal` and `sqlite3.Error`."""
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    path.chmod(0o600)
    database.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    database.execute("PRAGMA auto_vacuum = INCREMENTAL")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("PRAGMA wal_autocheckpoint = 4000")
    database.execute("PRAGMA journal_size_limit = 67108864")
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise NewerJournal(f"{path}: written by a newer version of the portal ({version})")
    if version < VERSION:
        database.create_function("pack", 3, _pack, deterministic=True)
        change = "".join(_CHANGES[step] for step in ([0] if version == 0 else range(version, VERSION)))
        database.executescript(f"BEGIN IMMEDIATE; {change} PRAGMA user_version = {VERSION}; COMMIT")
    return database


def row_of(job: CapturedJob) -> tuple[Any, ...]:
    """Return the values of COLUMNS."""
    return (
        job.cluster,
        job.job_id,
        microseconds(job.submitted_at),
        microseconds(job.captured_at),
        job.size_bytes,
        json.dumps({name: value for name in _FACTS if (value := getattr(job, name))}),
        _pack(job.script, job.environment, job.description),
    )


def job_of(row: Sequence[Any]) -> CapturedJob:
    """Return the job of the values of COLUMNS."""
    cluster, job_id, submitted_at, captured_at, _, text, content = row
    facts = json.loads(text)
    script, environment, description = _unpack(content)
    return CapturedJob(
        cluster=cluster,
        job_id=job_id,
        submitted_at=moment_of(submitted_at),
        captured_at=moment_of(captured_at),
        script=script,
        environment=environment,
        description=description,
        masked_names=tuple(facts.pop("masked_names", ())),
        **facts,
    )


def microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def moment_of(count: int) -> datetime:
    return _EPOCH + timedelta(microseconds=count)


def _pack(script: bytes, environment: bytes, description: bytes) -> bytes:
    lengths = _LENGTHS.pack(len(script), len(environment))
    with _one_at_a_time:
        return _compressor.compress(b"".join((lengths, script, environment, description)))


def _unpack(content: bytes) -> tuple[bytes, bytes, bytes]:
    with _one_at_a_time:
        whole = _decompressor.decompress(content)
    script, environment = _LENGTHS.unpack_from(whole)
    middle = _LENGTHS.size + script
    end = middle + environment
    return whole[_LENGTHS.size : middle], whole[middle:end], whole[end:]
