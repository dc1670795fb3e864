"""The simulated cluster: same seed, same bytes; what it spools,
records and says to be true fits together.
"""

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from apps.clusters.schedulers.base import JobRecord, JobState, SchedulerError
from apps.clusters.schedulers.simulated import Simulated, open_accounting
from apps.demo.simulation.simulator import Config, Simulator

NOW = datetime(2026, 11, 21, 12, 40, 30, tzinfo=UTC).timestamp()
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = 3600


def config(directory: Path, **values: object) -> Config:
    return Config(
        **{
            "directory": directory,
            "spool": directory / "spool",
            "seed": 5,
            "days": 1,
            "jobs_per_day": 300,
            **values,
        }
    )


def run(directory: Path, *moments: float, **values: object) -> None:
    """Advance to each moment, with a restart before each."""
    for moment in moments:
        simulator = Simulator(config(directory, **values), moment)
        for _ in simulator.advance(moment):
            pass
        simulator.close()


def records_of(directory: Path) -> list[JobRecord]:
    scheduler = Simulated("sim", {"dir": str(directory)})
    store = open_accounting(directory)
    done = json.loads(store.execute("SELECT value FROM state WHERE name = 'done'").fetchone()[0])
    store.close()
    return list(
        scheduler.finished_jobs(since=LONG_AGO, until=datetime.fromtimestamp(done + 1, UTC))
    )


def truth_of(directory: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (directory / "truth.jsonl").read_text().splitlines()]


def files_of(directory: Path) -> dict[str, bytes]:
    paths = (
        path
        for part in ("spool", "logs")
        for path in (directory / part).rglob("*")
        if path.is_file()
    )
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths} | {
        "truth": (directory / "truth.jsonl").read_bytes()
    }


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A day of history, written once for the tests that only read it."""
    directory = tmp_path_factory.mktemp("simulation")
    run(directory, NOW)
    yield directory
    shutil.rmtree(directory)


def test_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    run(directory, NOW, days=0.3)
    first, records = files_of(directory), records_of(directory)
    shutil.rmtree(directory)
    run(directory, NOW, days=0.3)

    assert files_of(directory) == first
    assert records_of(directory) == records


def test_other_seed_writes_other_jobs(tmp_path: Path) -> None:
    for seed in (1, 2):
        run(tmp_path / str(seed), NOW, days=0.2, seed=seed)

    assert records_of(tmp_path / "1") != records_of(tmp_path / "2")


def test_spool_is_read_by_the_slurm_reader(history: Path) -> None:
    spool = Simulated("sim", {"dir": str(history)}).spool(history / "spool")
    jobs = {entry.job_id: spool.read(entry) for entry in spool.scan()}
    records = records_of(history)

    assert {record.spool_id for record in records} <= set(jobs)
    for record in records:
        job, variables = jobs[record.spool_id], dict(jobs[record.spool_id].variables)
        assert job.submitted_at == record.submitted_at
        assert job.script.startswith(b"#!/bin/bash\n")
        assert f"--job-name={record.name}\n".encode() in job.script
        assert variables[b"USER"] == record.user.encode()
        request = variables.get(b"OPSPORTAL_REQUEST", b"").decode()
        assert record.comment == (
            f"campaign={request};stage={variables[b'OPSPORTAL_STAGE'].decode()}"
            if request
            else "analysis"
        )


def test_truth_names_every_failed_attempt_and_no_other(history: Path) -> None:
    failed = Counter(
        (r.raw_id, r.job_id, r.attempt)
        for r in records_of(history)
        if r.state is not JobState.COMPLETED
    )
    told = Counter((t["raw_id"], t["job_id"], t["attempt"]) for t in truth_of(history))

    assert told == failed
    assert max(told.values()) == 1


def test_failures_of_an_outage_overlap_it(history: Path) -> None:
    records = {(r.raw_id, r.attempt): r for r in records_of(history)}
    hit = [t for t in truth_of(history) if t["kind"] in ("outage", "node lost")]

    assert hit
    for truth in hit:
        record = records[truth["raw_id"], truth["attempt"]]
        began, ended = map(datetime.fromisoformat, truth["outage"])
        assert record.started_at is not None
        assert record.started_at < ended
        assert record.ended_at >= began


def test_most_jobs_succeed_and_some_fail(tmp_path: Path) -> None:
    run(tmp_path, NOW, days=3, jobs_per_day=200)
    records = records_of(tmp_path)
    failed = [record for record in records if record.state is not JobState.COMPLETED]

    assert len(records) > 450
    assert 0.03 < len(failed) / len(records) < 0.12


def test_logs_exist_for_every_job_that_ran(history: Path) -> None:
    # A requeued job starts its log anew.
    last = {record.raw_id: record for record in records_of(history)}
    for record in last.values():
        assert (record.started_at is None) == (record.stdout_path == "")
        if record.stdout_path:
            text = Path(record.stdout_path).read_text()
            assert f"attempt {record.attempt} on {record.host}" in text.splitlines()[0]
            assert ("job script exit status 0" in text) == (record.state is JobState.COMPLETED)


def test_restart_goes_on_without_doubling(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    run(directory, NOW, NOW + 2 * HOUR, days=0.3)
    whole, records = files_of(directory), records_of(directory)
    shutil.rmtree(directory)
    run(directory, *(NOW + minutes * 60 for minutes in range(0, 121, 8)), days=0.3)

    assert records_of(directory) == records
    assert files_of(directory) == whole


def test_step_that_was_killed_before_its_commit_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "cluster"
    run(directory, NOW, NOW + 6 * HOUR, days=0.3)
    whole, records = files_of(directory), records_of(directory)
    shutil.rmtree(directory)
    run(directory, NOW, days=0.3)

    simulator = Simulator(config(directory, days=0.3), NOW + 6 * HOUR)
    monkeypatch.setattr("apps.demo.simulation.simulator.add_records", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        list(simulator.advance(NOW + 6 * HOUR))
    simulator.close()
    monkeypatch.undo()
    run(directory, NOW + 6 * HOUR, days=0.3)

    assert records_of(directory) == records
    assert files_of(directory) == whole


def test_accounting_answers_only_once_history_is_written(tmp_path: Path) -> None:
    simulator = Simulator(config(tmp_path, days=0.3), NOW)
    scheduler, until = Simulated("sim", {"dir": str(tmp_path)}), datetime.fromtimestamp(NOW, UTC)
    with pytest.raises(SchedulerError):
        list(scheduler.finished_jobs(since=LONG_AGO, until=until))
    next(simulator.advance(NOW))
    with pytest.raises(SchedulerError):
        list(scheduler.finished_jobs(since=LONG_AGO, until=until))
    list(simulator.advance(NOW))
    simulator.close()

    assert list(scheduler.finished_jobs(since=LONG_AGO, until=until))


def test_prune_removes_entries_past_their_age_and_old_logs(tmp_path: Path) -> None:
    run(tmp_path, NOW, days=0.3, min_job_age_seconds=HOUR)
    simulator = Simulator(config(tmp_path, days=0.3, min_job_age_seconds=HOUR, keep_days=1), NOW)
    waiting = {entry.job_id for entry in Simulated("sim", {}).spool(tmp_path / "spool").scan()}

    simulator.prune(NOW + HOUR - 1)
    assert {e.job_id for e in Simulated("sim", {}).spool(tmp_path / "spool").scan()} == waiting
    simulator.prune(NOW + HOUR)
    left = {e.job_id for e in Simulated("sim", {}).spool(tmp_path / "spool").scan()}
    simulator.prune(NOW + 3 * 24 * HOUR)
    simulator.close()

    assert left < waiting
    assert records_of(tmp_path) == []
    assert not list((tmp_path / "logs").rglob("*.out"))


def test_long_gap_is_made_up_only_in_part(tmp_path: Path) -> None:
    run(tmp_path, NOW, days=0.2)
    run(tmp_path, NOW + 10 * 24 * HOUR, NOW + 10 * 24 * HOUR + 5 * HOUR, days=0.2)

    spool = Simulated("sim", {}).spool(tmp_path / "spool")
    spooled = {entry.job_id for entry in spool.scan()}
    records = records_of(tmp_path)
    assert {record.spool_id for record in records} <= spooled
    gap = [r for r in records if NOW + HOUR < r.submitted_at.timestamp() < NOW + 8.7 * 24 * HOUR]
    assert gap == []
    assert max(r.ended_at.timestamp() for r in records) > NOW + 10 * 24 * HOUR + 4 * HOUR


def test_other_campaigns_are_taken_up_from_the_next_hour(tmp_path: Path) -> None:
    run(tmp_path, NOW, days=0.2)
    simulator = Simulator(config(tmp_path, days=0.2), NOW)
    only = simulator._campaigns(0)[0]
    simulator.use((only,), NOW)
    simulator.close()
    run_with = Simulator(config(tmp_path, days=0.2), NOW + 3 * HOUR, (only,))
    list(run_with.advance(NOW + 3 * HOUR))
    run_with.close()

    late = [
        r for r in records_of(tmp_path) if r.submitted_at.timestamp() >= (NOW // HOUR + 1) * HOUR
    ]
    early = [
        r for r in records_of(tmp_path) if r.submitted_at.timestamp() < (NOW // HOUR + 1) * HOUR
    ]
    assert {r.name for r in late} == {only.name}
    assert len({r.name for r in early}) > 3


def test_lines_of_a_failed_service_come_after_the_start_of_the_job(history: Path) -> None:
    lines = 0
    for log in (history / "logs").rglob("*.out"):
        text = log.read_text()
        started_at = re.search(r" attempt \d+ on \S+ at (\S+ \S+)", text)
        for said_at in re.findall(r"^(\S+ \S+) https://samweb\S+ Timed out", text, re.MULTILINE):
            assert started_at
            assert said_at >= started_at[1], log
            lines += 1
    assert lines
