from datetime import datetime
from itertools import count
from pathlib import Path

import pytest

from apps.clusters.models import Site
from apps.diagnosis.domain.reading.line_templates import queue_completed, read_completed_batch
from apps.diagnosis.domain.verdicts.harvest import harvest_batch, queue_harvests
from apps.jobs.models import Job
from apps.search.domain.line_totals import recount_dirty_hours
from tests.factories import clusters
from tests.factories.jobs import row


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
        return row(values.pop("cluster", cluster), number, at=at, **values)

    make.next_number = lambda: next(numbers)
    return make


START = "2026-11-20 10:05:0{n} INFO event {n} of /pnfs/nova/r{n}.root\n"
BAD = START + "flux capacitor <b>17</b> cannot align\nexit 1\n"


def read_all(jobs: list[Job], at) -> None:
    """Read the logs of these jobs, and count their lines."""
    keys = [job.pk for job in jobs]
    queue_harvests(job_pks=keys, at=at)
    queue_completed(job_pks=keys, at=at)
    while harvest_batch(at=at):
        pass
    while read_completed_batch(at=at):
        pass
    recount_dirty_hours()


@pytest.fixture
def jobs(make_job, at, nova):
    """Six failed jobs with the line, five of them at one site; two without; eight good ones."""
    fnal, ral = (Site.objects.create(name=name) for name in ("FNAL", "RAL"))
    made = []
    for n in range(16):
        log = (BAD if n < 6 else START).replace("{n}", str(n % 10))
        state = {} if n < 8 else {"state": "completed", "exit_code": 0}
        job = make_job(n + 1, stage="reco", log=log, **state)
        Job.objects.filter(pk=job.pk).update(site=fnal if n < 5 else ral)
        made.append(job)
    read_all(made, at)
    return made
