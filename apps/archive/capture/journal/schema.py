"""The file of the journal: its tables, and how they come from those of earlier versions."""

import json
import sqlite3
import struct
from pathlib import Path

from zstandard import ZstdCompressor, ZstdDecompressor

from apps.archive.handover.batches import moment_of, pack
from apps.archive.handover.entry import CapturedJob

PAGE_BYTES = 4096
VERSION = 5

# A batch is what was added at once, its jobs numbered up to `last`. What a sink refuses is kept beside them.
_NEW_TABLES = """
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
    PRIMARY KEY (sink, seq)
);
"""
_TRIED = "ALTER TABLE refusal ADD COLUMN tried_at INTEGER NOT NULL DEFAULT 0;"
_SCHEMA = f"""
CREATE TABLE seen (
    cluster TEXT NOT NULL,
    job_id TEXT NOT NULL,
    submitted_at INTEGER NOT NULL,
    inode INTEGER NOT NULL,
    modified_ns INTEGER NOT NULL,
    PRIMARY KEY (cluster, job_id, submitted_at)
) WITHOUT ROWID;
CREATE TABLE sink (name TEXT PRIMARY KEY, acknowledged INTEGER NOT NULL) WITHOUT ROWID;
{_NEW_TABLES}
{_TRIED}
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
UPDATE entry SET content = content_3(script, environment, description);
ALTER TABLE entry DROP COLUMN script;
ALTER TABLE entry DROP COLUMN environment;
ALTER TABLE entry DROP COLUMN description;
""",
    3: f"""
{_NEW_TABLES}
UPDATE entry SET content = content_4(cluster, job_id, submitted_at, captured_at, facts, content);
INSERT INTO refusal SELECT sink, seq, reason, cluster, job_id, submitted_at, size_bytes, content
    FROM refused JOIN entry USING (seq);
INSERT INTO batch SELECT seq, 1, captured_at, size_bytes, content FROM entry
    WHERE seq > coalesce((SELECT min(acknowledged) FROM sink), 0);
DELETE FROM sqlite_sequence WHERE name = 'batch';
UPDATE sqlite_sequence SET name = 'batch' WHERE name = 'entry';
DROP TABLE entry;
DROP TABLE refused;
""",
    4: _TRIED,
}
_LENGTHS_3 = struct.Struct("<QQ")  # of script and environment; the description is the rest


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
        database.create_function("content_3", 3, _content_3, deterministic=True)
        database.create_function("content_4", 6, _content_4, deterministic=True)
        change = "".join(_CHANGES[step] for step in ([0] if version == 0 else range(version, VERSION)))
        database.executescript(f"BEGIN IMMEDIATE; {change} PRAGMA user_version = {VERSION}; COMMIT")
    return database


def _content_3(script: bytes, environment: bytes, description: bytes) -> bytes:
    lengths = _LENGTHS_3.pack(len(script), len(environment))
    return ZstdCompressor(level=1).compress(b"".join((lengths, script, environment, description)))


def _content_4(cluster: str, job_id: str, submitted_at: int, captured_at: int, text: str, content: bytes) -> bytes:
    """Return an entry of version 3 as a batch of one job."""
    whole = ZstdDecompressor().decompress(content)
    script, environment = _LENGTHS_3.unpack_from(whole)
    middle = _LENGTHS_3.size + script
    end = middle + environment
    facts = json.loads(text)
    job = CapturedJob(
        cluster=cluster,
        job_id=job_id,
        submitted_at=moment_of(submitted_at),
        captured_at=moment_of(captured_at),
        script=whole[_LENGTHS_3.size : middle],
        environment=whole[middle:end],
        description=whole[end:],
        masked_names=tuple(facts.pop("masked_names", ())),
        **facts,
    )
    return pack([job])
