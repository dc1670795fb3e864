"""A journal that an earlier version of capture wrote is read by this one."""

import json
import sqlite3
from contextlib import closing

from apps.archive.capture.journal.journal import Journal
from apps.archive.handover.batches import Batch
from apps.clusters.schedulers.base import Identity
from tests.factories.archive import captured_job, with_identity

JOURNAL_1 = """
CREATE TABLE entry (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    cluster TEXT NOT NULL,
    job_id TEXT NOT NULL,
    submitted_at INTEGER NOT NULL,
    scheduler TEXT NOT NULL,
    captured_at INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    request_key TEXT NOT NULL,
    stage TEXT NOT NULL,
    masked_names TEXT NOT NULL,
    script BLOB NOT NULL,
    environment BLOB NOT NULL,
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
PRAGMA user_version = 1;
"""


def test_journal_of_version_1_is_read(tmp_path):
    job = captured_job(7, request_key="NOVA-0231", stage="sim", masked_names=("TOKEN",), script=b"\xff\0")
    moment = int(job.submitted_at.timestamp()) * 1_000_000
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as database:
        database.executescript(JOURNAL_1)
        values = (job.cluster, job.job_id, moment, job.scheduler, moment + 1_000_000, job.size_bytes)
        contents = (job.request_key, job.stage, json.dumps(job.masked_names), job.script, job.environment)
        database.execute(f"INSERT INTO entry VALUES (5, {', '.join('?' * 11)})", (*values, *contents))
        database.execute("INSERT INTO seen VALUES ('alps', '7', ?, 11, 12)", (moment,))
        database.execute("INSERT INTO sink VALUES ('store', 4)")
        database.execute("INSERT INTO refused VALUES ('files', 5, 'too large')")
        database.commit()

    with closing(Journal(tmp_path, sinks=["store"])) as journal:
        assert [(entry.seq, entry.job) for entry in journal.pending("store")] == [(5, job)]
        assert [(entry.seq, entry.job, why) for entry, why in journal.refused("files")] == [(5, job, "too large")]
        assert journal.known("alps") == {"7": Identity(11, 12)}
        assert journal.add(Batch.of([(job, Identity(11, 12))])) == 0
        assert journal.add(with_identity(captured_job(8))) == 1
        assert [entry.seq for entry in journal.pending("store")] == [5, 6]
