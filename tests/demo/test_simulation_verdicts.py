"""The verdicts that the engine gives on simulated failures are the ones that were planted."""

import json
import os
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from apps.clusters.schedulers.base import JobRecord
from apps.clusters.schedulers.simulated import Simulated
from apps.demo.simulation.causes import ENDS
from apps.demo.simulation.simulator import Config, Simulator
from apps.diagnosis.engine.base import JobFacts
from apps.diagnosis.engine.diagnose import diagnose, read_log
from apps.diagnosis.engine.logs.access import LogAccess
from apps.diagnosis.engine.logs.tail import open_log
from apps.diagnosis.engine.registry import classifiers

NOW = datetime(2026, 11, 21, 12, 0, 30, tzinfo=UTC).timestamp()


def verdict_on(record: JobRecord, logs: Path) -> str:
    facts = JobFacts(
        scheduler="simulated",
        state=record.state,
        exit_code=record.exit_code,
        signal=record.signal,
        cancelled_by=record.cancelled_by,
        host=record.host,
        wall_seconds=record.wall_seconds,
        time_limit_seconds=record.time_limit_seconds,
        max_memory_bytes=record.max_memory_bytes,
        requested_memory_bytes=record.requested_memory_bytes,
    )
    if not record.stdout_path:
        return diagnose(facts, [], classifiers=classifiers()).verdict.verdict.value
    with open_log(Path(record.stdout_path), LogAccess((logs,), uid=os.getuid())) as descriptor:
        block = read_log(descriptor)
    return diagnose(facts, [block], classifiers=classifiers()).verdict.verdict.value


def test_verdicts_agree_with_the_truth(tmp_path: Path) -> None:
    simulator = Simulator(
        Config(tmp_path, tmp_path / "spool", seed=11, days=3, jobs_per_day=350), NOW
    )
    list(simulator.advance(NOW))
    simulator.close()
    until = datetime.fromtimestamp(NOW, UTC)
    records = Simulated("sim", {"dir": str(tmp_path)}).finished_jobs(
        since=datetime(2026, 1, 1, tzinfo=UTC), until=until
    )
    by_attempt = {(record.raw_id, record.attempt): record for record in records}
    truths = [json.loads(line) for line in (tmp_path / "truth.jsonl").read_text().splitlines()]

    given = [
        (truth, verdict_on(by_attempt[truth["raw_id"], truth["attempt"]], tmp_path / "logs"))
        for truth in truths
    ]

    misses = Counter(
        (truth["kind"], truth["blame"], truth["verdict"], verdict)
        for truth, verdict in given
        if truth["verdict"] != verdict
    )
    assert misses.total() <= 0.01 * len(given), misses
    assert len({truth["kind"] for truth in truths}) >= len(ENDS) - 3
