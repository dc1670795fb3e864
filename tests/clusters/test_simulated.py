"""The adapter of the simulated cluster, on what the simulator itself writes."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from apps.clusters.schedulers.base import JobRecord, JobState, SchedulerError
from apps.clusters.schedulers.simulated import (
    Simulated,
    add_records,
    mark_complete,
    open_accounting,
)

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def record(raw_id: int, ended_at: datetime, **values: object) -> JobRecord:
    defaults = {
        "job_id": str(raw_id),
        "spool_id": str(raw_id),
        "attempt": 1,
        "state": JobState.FAILED,
    }
    defaults |= {
        "exit_code": 1,
        "signal": 0,
        "submitted_at": NOW - timedelta(hours=2),
        "started_at": NOW - timedelta(hours=1),
    }
    return JobRecord(raw_id=raw_id, ended_at=ended_at, **{**defaults, **values})


def write(directory: Path, *records: JobRecord) -> Simulated:
    store = open_accounting(directory)
    add_records(store, records)
    mark_complete(store, (NOW + timedelta(days=1)).timestamp())
    store.close()
    return Simulated("sim", {"dir": str(directory)})


def test_finished_jobs_are_those_of_the_half_open_interval(tmp_path: Path) -> None:
    records = [record(n, NOW + timedelta(seconds=n)) for n in range(4)]
    scheduler = write(tmp_path, *reversed(records))

    found = list(
        scheduler.finished_jobs(since=NOW + timedelta(seconds=1), until=NOW + timedelta(seconds=3))
    )

    assert found == records[1:3]


def test_attempts_of_one_job_stay_apart_and_are_added_once(tmp_path: Path) -> None:
    first, second = (
        record(7, NOW, attempt=1, state=JobState.NODE_FAIL),
        record(7, NOW, attempt=2, name="x|y\nz"),
    )
    write(tmp_path, first, second)
    scheduler = write(tmp_path, first, second)

    assert list(scheduler.finished_jobs(since=NOW, until=NOW + timedelta(1))) == [first, second]


def test_simulation_that_has_not_come_so_far_is_a_scheduler_error(tmp_path: Path) -> None:
    scheduler = write(tmp_path, record(1, NOW))

    with pytest.raises(SchedulerError, match="has come to 2026-11-22 12:00:00 UTC only"):
        list(scheduler.finished_jobs(since=NOW, until=NOW + timedelta(days=1, minutes=1)))


def test_store_that_is_missing_is_a_scheduler_error(tmp_path: Path) -> None:
    with pytest.raises(SchedulerError, match=r"accounting\.sqlite3"):
        list(Simulated("sim", {"dir": str(tmp_path)}).finished_jobs(since=NOW, until=NOW))
    with pytest.raises(SchedulerError, match="`dir` is not set"):
        list(Simulated("sim", {}).finished_jobs(since=NOW, until=NOW))


def test_store_that_is_no_database_is_a_scheduler_error(tmp_path: Path) -> None:
    (tmp_path / "accounting.sqlite3").write_bytes(b"no database at all" * 100)
    with pytest.raises(SchedulerError):
        list(Simulated("sim", {"dir": str(tmp_path)}).finished_jobs(since=NOW, until=NOW))


def test_log_paths_of_a_job_that_never_started_are_unknown(tmp_path: Path) -> None:
    scheduler = Simulated("sim", {"dir": str(tmp_path)})
    ran = record(1, NOW, stdout_path="/logs/1.out", stderr_path="/logs/1.out")

    paths = scheduler.log_paths(ran, script=b"", environment={})

    assert paths is not None
    assert (paths.stdout, paths.stderr, paths.source) == (
        Path("/logs/1.out"),
        Path("/logs/1.out"),
        "accounting",
    )
    assert scheduler.log_paths(record(2, NOW, started_at=None), script=b"", environment={}) is None
