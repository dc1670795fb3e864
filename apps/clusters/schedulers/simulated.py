"""The simulated cluster of demo and tests, used like a real scheduler.

It has a spool in Slurm's format, and accounting written by `manage.py simulate`.
"""

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from apps.clusters.schedulers.base import (
    BatchJob,
    CurrentJobs,
    CurrentState,
    JobRecord,
    JobState,
    LogPaths,
    OwnedJob,
    SchedulerError,
    SubmissionRefused,
)
from apps.clusters.schedulers.slurm.spool import SlurmSpool
from apps.clusters.schedulers.slurm.submission import check_name

_SCHEMA = """
CREATE TABLE IF NOT EXISTS attempt (
    raw_id INTEGER NOT NULL, attempt INTEGER NOT NULL, ended REAL NOT NULL, record TEXT NOT NULL,
    PRIMARY KEY (raw_id, attempt)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS attempt_ended ON attempt (ended);
CREATE TABLE IF NOT EXISTS spooled (spool_id INTEGER PRIMARY KEY, purge REAL NOT NULL);
CREATE TABLE IF NOT EXISTS sent (
    spool_id INTEGER PRIMARY KEY, name TEXT NOT NULL, submitted REAL NOT NULL, job TEXT NOT NULL,
    taken REAL);
CREATE INDEX IF NOT EXISTS sent_name ON sent (name);
CREATE TABLE IF NOT EXISTS told (
    id INTEGER PRIMARY KEY, spool_id INTEGER NOT NULL, word TEXT NOT NULL, moment REAL);
CREATE INDEX IF NOT EXISTS told_spool_id ON told (spool_id);
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
#: Lower than the IDs of jobs that the simulation submits itself.
FIRST_SENT_ID = 5_000_000
PARTITION = "grid"
# The maximum delay of a running simulation.
_BEHIND_SECONDS = 15
_TIMES = {"submitted_at", "started_at", "ended_at"}


def accounting_path(directory: Path) -> Path:
    return directory / "accounting.sqlite3"


def open_accounting(directory: Path) -> sqlite3.Connection:
    """Open the store for writing, creating it if necessary. Only `simulate` does this."""
    directory.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(accounting_path(directory), timeout=10, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.executescript(_SCHEMA)
    return connection


def add_records(connection: sqlite3.Connection, records: Iterable[JobRecord]) -> None:
    """Add finished attempts; existing ones stay unchanged."""
    names = [field.name for field in fields(JobRecord)]
    rows = []
    for record in records:
        # `asdict` would copy every value.
        values = {name: getattr(record, name) for name in names}
        text = json.dumps(values, default=datetime.timestamp)
        rows.append((record.raw_id, record.attempt, record.ended_at.timestamp(), text))
    connection.executemany("INSERT OR IGNORE INTO attempt VALUES (?, ?, ?, ?)", rows)


def mark_complete(connection: sqlite3.Connection, until: float) -> None:
    """Record that all jobs that ended before `until`, in seconds since 1970, have been added."""
    connection.execute("INSERT OR REPLACE INTO state VALUES ('done', ?)", (json.dumps(until),))


def store_current(connection: sqlite3.Connection, jobs: Iterable[CurrentJobs]) -> None:
    """Replace the list of unfinished jobs."""
    rows = []
    for group in jobs:
        rows.append(
            [
                group.spool_id,
                group.submitted_at.timestamp(),
                group.state,
                group.jobs,
                group.account,
                group.reason,
            ]
        )
    connection.execute("INSERT OR REPLACE INTO state VALUES ('current', ?)", (json.dumps(rows),))


class Simulated:
    """A simulated cluster.

    Options: `dir`, the directory that `manage.py simulate --dir` writes, and `owners`. With
    `owners` set to `yes`, failed jobs can be submitted again as their owners.
    """

    name = "simulated"

    def __init__(self, cluster: str, options: Mapping[str, str]) -> None:
        self.cluster = cluster
        self.directory = None
        if options.get("dir"):
            self.directory = Path(options.get("dir", ""))
        self.submits_as_owner = options.get("owners") == "yes"

    def spool(self, directory: Path) -> SlurmSpool:
        return SlurmSpool(directory)

    def finished_jobs(self, *, since: datetime, until: datetime) -> Iterator[JobRecord]:
        """Return every attempt that ended in [since, until), ordered by end.

        Raises `SchedulerError`, also if the simulation has not reached `until`, for example because
        it is stopped.
        """
        query = (
            "SELECT record FROM attempt WHERE ended >= ? AND ended < ? ORDER BY ended, raw_id, "
            "attempt"
        )
        with self._opened() as store:
            done = _state(store, "done") or 0.0
            if until.timestamp() - done > _BEHIND_SECONDS:
                reached = datetime.fromtimestamp(done, UTC)
                raise SchedulerError(
                    f"the simulation has come to {reached:%Y-%m-%d %H:%M:%S} UTC only; is it "
                    "running?"
                )
            for (text,) in store.execute(query, (since.timestamp(), until.timestamp())):
                values = json.loads(text)
                for name in _TIMES:
                    if values[name] is not None:
                        values[name] = datetime.fromtimestamp(values[name], UTC)
                yield JobRecord(**{**values, "state": JobState(values["state"])})

    def current_jobs(self) -> Iterator[CurrentJobs]:
        """Yield queued and running jobs.

        Raises `SchedulerError`, also if the simulation has not written them yet.
        """
        with self._opened() as store:
            rows = _state(store, "current")
        if rows is None:
            raise SchedulerError("the simulation has not written its queue yet")
        for spool_id, submitted, state, *columns in rows:
            yield CurrentJobs(
                spool_id, datetime.fromtimestamp(submitted, UTC), CurrentState(state), *columns
            )

    def submit(self, job: BatchJob) -> str:
        """Queue a job; the simulation accepts it in its next step.

        Raises `SubmissionRefused` for an invalid name or partition, as Slurm does, else
        `SchedulerError`.
        """
        check_name(job.name)
        if job.partition not in {"", PARTITION}:
            raise SubmissionRefused(f"there is no partition {job.partition!r}")
        if job.tasks < 1 or any("\0" in text for text in (job.script, *job.environment.values())):
            raise SubmissionRefused(
                "a job needs tasks, and its script and variables must not contain a NUL"
            )
        return self._queue(job)

    def submit_as_owner(self, job: OwnedJob) -> str:
        """Queue a job of another user again; a task keeps its number in a new array.

        Raises as `submit`, also while the first job is queued or running. Other tasks of its array
        may be running.
        """
        if self._is_there(job.first_id, job.task):
            if job.task is None:
                first_id = job.first_id
            else:
                first_id = f"{job.first_id}_{job.task}"
            raise SubmissionRefused(f"{first_id} is queued or runs")
        pairs = []
        for pair in job.environment.split(b"\0"):
            if pair:
                pairs.append(pair.partition(b"="))
        retry = BatchJob(
            name=job.name,
            script=job.script.decode(errors="surrogateescape"),
            tasks=1,
            time_limit_seconds=job.time_limit_seconds,
            memory_bytes=job.memory_bytes,
            environment={os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs},
            directory=job.directory,
            account=job.account,
            partition=job.partition,
            avoided_hosts=job.avoided_hosts,
        )
        return self._queue(retry, owner=job.owner, first_task=job.task)

    def _is_there(self, first_id: str, task: int | None) -> bool:
        """Return whether a job is queued or running.

        `task` is its number in the array `first_id`; None if it is not in an array.
        """
        with self._opened() as store:
            current = {str(job[0]) for job in _state(store, "current") or ()}
            unread = "SELECT 1 FROM sent WHERE spool_id = ? AND taken IS NULL"
            is_unread = store.execute(unread, (first_id,)).fetchone() is not None
            if is_unread or task is None or first_id not in current:
                return is_unread or first_id in current

            # The queue lists arrays, not tasks: a task has ended if accounting has its end and it
            # was not requeued.
            query = "SELECT record FROM attempt WHERE raw_id IN (?, ?) ORDER BY attempt"
            rows = store.execute(query, (int(first_id), int(first_id) + task + 1)).fetchall()
        records = [json.loads(text) for (text,) in rows]
        states = []
        for record in records:
            if record["job_id"] == f"{first_id}_{task}":
                states.append(record["state"])
        return not states or states[-1] == JobState.NODE_FAIL

    def _queue(self, job: BatchJob, *, owner: str = "", first_task: int | None = 0) -> str:
        """Store a job for the next step.

        `first_task` is the lowest task number of the array; None if the job is not an array.
        """
        with self._opened("rw") as store:
            last = store.execute(
                "SELECT spool_id, job FROM sent ORDER BY spool_id DESC LIMIT 1"
            ).fetchone()
            if last:
                spool_id = last[0] + json.loads(last[1])["tasks"]
            else:
                spool_id = FIRST_SENT_ID
            now = max(datetime.now(UTC).timestamp(), _state(store, "done") or 0.0)
            values = (
                spool_id,
                job.name,
                now,
                json.dumps({**asdict(job), "owner": owner, "first_task": first_task}),
            )
            store.execute(
                "INSERT INTO sent (spool_id, name, submitted, job) VALUES (?, ?, ?, ?)", values
            )
        return str(spool_id)

    def find_submitted(self, name: str) -> str | None:
        """Return the ID of the first job with this name. Raises `SchedulerError`."""
        check_name(name)
        with self._opened() as store:
            row = store.execute("SELECT min(spool_id) FROM sent WHERE name = ?", (name,)).fetchone()
        return str(row[0]) if row[0] is not None else None

    def cancel(self, spool_id: str) -> None:
        self._tell(spool_id, "cancel")

    def hold(self, spool_id: str) -> None:
        self._tell(spool_id, "hold")

    def release(self, spool_id: str) -> None:
        self._tell(spool_id, "release")

    def _tell(self, spool_id: str, word: str) -> None:
        if not spool_id.isdigit():
            raise SchedulerError(f"{spool_id!r} is not a job ID")
        with self._opened("rw") as store:
            store.execute("INSERT INTO told (spool_id, word) VALUES (?, ?)", (int(spool_id), word))

    @contextmanager
    def _opened(self, mode: str = "ro") -> Iterator[sqlite3.Connection]:
        """Open the store in a transaction. Raises `SchedulerError`."""
        if self.directory is None:
            raise SchedulerError(f"cluster {self.cluster}: the option `dir` is not set")
        path = accounting_path(self.directory)
        uri = f"{path.absolute().as_uri()}?mode={mode}"
        try:
            with closing(
                sqlite3.connect(uri, uri=True, timeout=10, isolation_level=None)
            ) as connection:
                connection.execute("BEGIN IMMEDIATE" if mode == "rw" else "BEGIN")
                yield connection
                connection.execute("COMMIT")
        except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
            raise SchedulerError(f"{path}: {error}") from error

    def log_paths(
        self, record: JobRecord, *, script: bytes, environment: Mapping[str, str]
    ) -> LogPaths | None:
        """Return the paths in accounting, which has them for every job that started."""
        return record.known_paths() if record.started_at else None


def _state(store: sqlite3.Connection, name: str) -> Any:
    """Return a value that the simulation has written; None if it is missing."""
    row = store.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
    return json.loads(row[0]) if row else None
