from datetime import datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from apps.jobs.models import Job
from tests.factories import clusters


@pytest.fixture
def roots(tmp_path, settings) -> Path:
    """The directory under which logs may be read."""
    directory = tmp_path / "logs"
    directory.mkdir()
    settings.LOG_ROOTS = [directory]
    return directory


@pytest.fixture
def make_job(db, nova, at: datetime, roots: Path):
    """Make a failed job of NOvA that ended at noon; `log` and `error_log` are what it wrote."""
    cluster = clusters.cluster()

    numbers = count(1000)

    def make(number: int = 1, *, log: str | None = None, error_log: str | None = None, **fields) -> Job:
        values = {
            "cluster": cluster,
            "job_id": str(number),
            "raw_id": number,
            "spool_id": str(number),
            "state": "failed",
            "exit_code": 1,
            "submitted_at": at - timedelta(hours=2),
            "started_at": at - timedelta(hours=1),
            "ended_at": at,
            "host": "wn-0233",
            "wall_seconds": 3600,
            "experiment": nova,
            "collected_at": at,
            "log_path": str(roots / f"{number}.out"),
            **fields,
        }
        if log is not None:
            (roots / f"{number}.out").write_text(log)
        if error_log is not None:
            (roots / f"{number}.err").write_text(error_log)
            values["error_log_path"] = str(roots / f"{number}.err")
        return Job.objects.create(**values)

    make.next_number = lambda: next(numbers)
    return make
