"""A real Slurm keeps the contract of those to which jobs can be sent."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from apps.clusters.schedulers.slurm.scheduler import Slurm
from tests.contracts.submission import Harness, SubmissionContract
from tests.programs.slurm_server import SlurmServer

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm"), pytest.mark.timeout(900)]


@dataclass
class SlurmHarness:
    scheduler: Slurm
    spool_directory: Path
    directory: str

    def moment(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=2)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 300
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.2)


class TestSlurmSubmission(SubmissionContract):
    @pytest.fixture(scope="class")
    @classmethod
    def harness(cls, slurm: SlurmServer) -> Harness:
        scheduler = Slurm(slurm.cluster, {"conf": str(slurm.conf)})
        return SlurmHarness(scheduler, slurm.state_dir, str(slurm.jobs_dir))
