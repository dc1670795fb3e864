"""What the first version has archived arrives in this one: its database and its journal."""

import hashlib
import json
import sqlite3
from contextlib import closing
from urllib.parse import urlsplit

import psycopg
import pytest
from django.db import connection
from zstandard import ZstdCompressor

from apps.archive.capture.journal.journal import Journal
from apps.archive.handover.batches import Batch
from apps.clusters.schedulers.base import Identity

from .conftest import START, captured_job, with_identity

ENVIRONMENT = b"\x01\0\0\0A=1\0"
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


@pytest.fixture
def old_portal(portal):
    """A portal whose database is new and empty; yields it and the database's address."""
    name = "opsportal_migrations"
    with connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {name}")
        cursor.execute(f"CREATE DATABASE {name}")
    url = urlsplit(portal.environment["DATABASE_URL"])._replace(path=f"/{name}").geturl()
    yield type(portal)(portal.environment | {"DATABASE_URL": url}), url
    with connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.slow
def test_archive_of_the_first_migration_arrives_whole(old_portal):
    portal, url = old_portal
    portal.run("migrate", "-v0", "--skip-checks", "archive", "0001")
    with psycopg.connect(url) as database:
        scripts = {str(number): _archive_as_it_was(database, number) for number in (1, 2, 3)}

    portal.run("migrate", "-v0", "--skip-checks")

    listed = {job["job_id"]: job for job in portal.listed()}
    assert {job_id: job["script_sha256"] for job_id, job in listed.items()} == {
        job_id: hashlib.sha256(script).hexdigest() for job_id, script in scripts.items()
    }
    assert {job["environment_sha256"] for job in listed.values()} == {hashlib.sha256(ENVIRONMENT).hexdigest()}
    assert {tuple(job["masked"]) for job in listed.values()} == {("TOKEN",)}
    assert {job_id: portal.run("archive", "show", job_id, "--cluster", "alps")[0] for job_id in scripts} == scripts
    portal.run("archive", "verify")


def _archive_as_it_was(database, number):
    """Archive a job as the first version did; jobs 1 and 2 have the same script."""
    script = b"#!/bin/sh\n%d\n" % max(number, 2)
    for kind, content in (("script", script), ("environment", ENVIRONMENT)):
        database.execute(
            "INSERT INTO archive_blob (sha256, kind, size_bytes, data) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING",
            (hashlib.sha256(content).digest(), kind, len(content), ZstdCompressor().compress(content)),
        )
    (cluster,) = database.execute(
        "INSERT INTO clusters_cluster (name, scheduler, options, collects) VALUES ('alps', 'slurm', '{}', true)"
        " ON CONFLICT (name) DO UPDATE SET scheduler = 'slurm' RETURNING id"
    ).fetchone()
    database.execute(
        "INSERT INTO archive_archivedjob (cluster_id, job_id, submitted_at, captured_at, script_id, environment_id,"
        " script_bytes, environment_bytes, request_key, stage, masked_names)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, '', '', '[\"TOKEN\"]')",
        (
            *(cluster, str(number), START, START),
            *(hashlib.sha256(script).digest(), hashlib.sha256(ENVIRONMENT).digest()),
            *(len(script), len(ENVIRONMENT)),
        ),
    )
    return script


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
