from datetime import datetime
from itertools import count
from pathlib import Path

import pytest

from apps.jobs.models import Job
from tests.factories import clusters, jobs


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

    def make(
        number: int = 1, *, log: str | None = None, error_log: str | None = None, **fields
    ) -> Job:
        values = {"experiment": nova, "log_path": str(roots / f"{number}.out"), **fields}
        if log is not None:
            (roots / f"{number}.out").write_text(log)
        if error_log is not None:
            (roots / f"{number}.err").write_text(error_log)
            values["error_log_path"] = str(roots / f"{number}.err")
        return jobs.row(values.pop("cluster", cluster), number, at=at, **values)

    make.next_number = lambda: next(numbers)
    return make
