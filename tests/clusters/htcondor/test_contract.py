"""HTCondor keeps the contract of every scheduler."""

import shutil
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from apps.clusters.schedulers.base import EntryVanished, JobState, SpoolEntry
from apps.clusters.schedulers.htcondor.scheduler import HTCondor
from apps.clusters.schedulers.htcondor.script import COPIED
from tests.contracts.scheduler import JOBS, Harness, Job, Ran, SchedulerContract
from tests.factories.htcondor_spool import Schedd, Value, banner, history_ad, v2


def passed_on(job: Job) -> dict[str, str]:
    """Return the variables of a job that condor_submit takes: it refuses newlines in them."""
    return {name: value for name, value in job.environment.items() if "\n" not in value}


class HTCondorHarness:
    """Submits by writing what the schedd writes: the job queue log,
    and at the end of a job its history.
    """

    def __init__(self, directory: Path, home: Path) -> None:
        self.home = home
        self.schedd = Schedd(directory / "spool")
        self.spool_directory = self.schedd.spool
        self.history = self.spool_directory / "history"
        self.history.touch()
        self.scheduler = HTCondor("mice", {"history": str(self.spool_directory)})
        self.next_id = 9_998

    def submit(self, job: Job) -> str:
        number, self.next_id = self.next_id, self.next_id + 1
        script = self.home / f"{number}.sh"
        script.write_bytes(job.script)
        self.schedd.submit(
            number,
            [{"Environment": v2(passed_on(job))} for _ in range(max(job.tasks, 1))],
            Cmd=script.name,
            Iwd=str(self.home),
        )
        for proc in range(max(job.tasks, 1)):
            self._end(job, number, proc)
        return str(number)

    def _end(self, job: Job, number: int, proc: int) -> None:
        out, at = f"{number}.{proc}.out", int(time.time())
        (self.home / out).write_text(job.output)
        values: dict[str, Value] = {"Iwd": str(self.home), "Out": out, "ExitCode": job.exit_code}
        if job.signal:
            values |= {"ExitBySignal": True, "ExitSignal": job.signal}
        if job.state == JobState.CANCELLED:
            values |= {
                "JobStatus": 3,
                "CompletionDate": 0,
                "RemoveReason": "via condor_rm (by user ana)",
            }
        if not job.started:
            values |= {"JobCurrentStartDate": 0, "NumJobStarts": 0}
        completed = 0 if job.state == JobState.CANCELLED else at
        with self.history.open("ab") as file:
            file.write(
                history_ad(number, proc, **values)
                + banner(number, proc, completed=completed, written=at)
            )

    def wait_ended(self, spool_ids: Iterable[str]) -> None:
        """They have ended."""

    def half_written(self, directory: Path) -> SpoolEntry:
        Schedd(directory).submit(7, [{"JobStatus": 5, "HoldReasonCode": 16}])
        return SpoolEntry("7", directory / "cluster 7")


class TestHTCondor(SchedulerContract):
    @pytest.fixture(scope="class")
    @classmethod
    def harness(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterable[Harness]:
        home = Path(tempfile.mkdtemp(prefix="home-"))
        home.chmod(0o755)
        yield HTCondorHarness(tmp_path_factory.mktemp("htcondor"), home)
        shutil.rmtree(home)

    @pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
    def test_spool_holds_the_bytes_that_were_submitted(self, ran: Ran, job: Job) -> None:
        """All variables that can be: none has a newline. It is best effort, and says so."""
        spooled = ran.spooled[job.name]

        assert spooled.script == job.script
        assert spooled.job_id == ran.ids[job.name]
        assert dict(spooled.variables) == {
            name.encode(): value.encode() for name, value in passed_on(job).items()
        }
        assert (
            int(ran.since.timestamp()) <= spooled.submitted_at.timestamp() <= ran.until.timestamp()
        )
        assert spooled.caveat.startswith(COPIED)

    def test_spool_says_when_an_entry_is_gone(self, harness: Harness, tmp_path: Path) -> None:
        """The queue says so, where others have a file that goes."""
        harness.half_written(tmp_path)
        Schedd(tmp_path)

        with pytest.raises(EntryVanished):
            harness.scheduler.spool(tmp_path).read(SpoolEntry("7", tmp_path / "cluster 7"))

    @staticmethod
    def task_ids(spool_id: str, tasks: int) -> set[str]:
        return {f"{spool_id}.{proc}" for proc in range(tasks)}
