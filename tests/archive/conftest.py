from datetime import UTC, datetime, timedelta

import pytest

from apps.archive.capture.entry import CapturedJob, Identity
from apps.archive.capture.journal import Journal
from tests.archive.spool_writer import environment_bytes, script_of

START = datetime(2026, 11, 20, 9, 12, tzinfo=UTC)


def captured_job(job_id=1, *, cluster="alps", minutes=0, **changes) -> CapturedJob:
    values = {
        "cluster": cluster,
        "scheduler": "slurm",
        "job_id": str(job_id),
        "submitted_at": START + timedelta(minutes=minutes),
        "captured_at": START + timedelta(minutes=minutes, seconds=1),
        "script": script_of(int(job_id)),
        "environment": environment_bytes(),
    }
    return CapturedJob(**values | changes)


def with_identity(*jobs):
    return [(job, Identity(int(job.job_id), 1)) for job in jobs]


@pytest.fixture
def spool(tmp_path):
    directory = tmp_path / "spool"
    directory.mkdir()
    return directory


@pytest.fixture
def journal(tmp_path):
    journal = Journal(tmp_path / "journal", sinks=["store"])
    yield journal
    journal.close()
