"""Jobs that sbatch submits steadily, and what became of them."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import count, pairwise

from benchmarks.failover.archived import MARK, ArchivedNumber, script_with
from benchmarks.failover.slurm import SlurmPair


@dataclass(frozen=True)
class Submission:
    """One call of sbatch: `job_id` is its answer, `error` what it printed instead.

    `began` is a time of the monotonic clock, in seconds.
    """

    number: int
    began: float
    seconds: float
    job_id: str
    error: str

    @property
    def ended(self) -> float:
        return self.began + self.seconds


class Submitter:
    """Submits one job after another until `stop`."""

    def __init__(self, slurm: SlurmPair, pause_seconds: float) -> None:
        self._slurm = slurm
        self._pause_seconds = pause_seconds
        self._stopped = threading.Event()
        self.submissions: list[Submission] = []
        self._thread = threading.Thread(target=self._submit, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _submit(self) -> None:
        for number in count(1):
            if self._stopped.wait(self._pause_seconds):
                return
            began = time.monotonic()
            answer = self._slurm.submit(script_with(number), {MARK: str(number)})
            seconds = time.monotonic() - began
            job_id = answer.stdout.strip() if answer.returncode == 0 else ""
            error = "" if job_id else answer.stderr.strip() or f"status {answer.returncode}"
            self.submissions.append(Submission(number, began, seconds, job_id, error))


@dataclass
class Audit:
    """Ids of jobs, by what is wrong with them in the archive, and what Slurm has done.

    `lost` were accepted and are not archived, `doubled` are archived more than once, `altered`
    have another environment than submitted. Slurm has given `reused` to several jobs, and has
    `resubmitted` a job under a second id.
    """

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    altered: list[str] = field(default_factory=list)
    reused: list[str] = field(default_factory=list)
    resubmitted: list[str] = field(default_factory=list)

    def is_whole(self) -> bool:
        return not (self.lost or self.doubled or self.altered)


def audit(submissions: Iterable[Submission], rows: Collection[ArchivedNumber]) -> Audit:
    """Compare what sbatch answered with what is archived."""
    times = Counter((row.job_id, row.in_script) for row in rows)
    accepted = set()
    for submission in submissions:
        if submission.job_id:
            accepted.add((submission.job_id, submission.number))
    numbers_by_id = Counter(job_id for job_id, _ in times)
    ids_by_number = Counter(number for _, number in times)
    return Audit(
        lost=sorted(job_id for job_id, _ in accepted - times.keys()),
        doubled=[job_id for (job_id, _), rows_of_job in times.items() if rows_of_job > 1],
        altered=[row.job_id for row in rows if row.in_environment != row.in_script],
        reused=[job_id for job_id, numbers in numbers_by_id.items() if numbers > 1],
        resubmitted=[job_id for job_id, number in times if ids_by_number[number] > 1],
    )


def longest_gap(submissions: Iterable[Submission], begin: float, end: float) -> float:
    """Return the longest time in seconds in which no job was accepted."""
    accepted = []
    for submission in submissions:
        if submission.job_id and begin < submission.ended < end:
            accepted.append(submission.ended)
    moments = [begin, *accepted, end]
    return max(later - earlier for earlier, later in pairwise(moments))


def wait_until_archived(
    submitter: Submitter, read: Callable[[], list[ArchivedNumber]], seconds: float
) -> Audit:
    """Wait until all jobs accepted by now are archived, or so many seconds have passed."""
    submissions = list(submitter.submissions)
    deadline = time.monotonic() + seconds
    while True:
        result = audit(submissions, read())
        if not result.lost or time.monotonic() > deadline:
            return result
        time.sleep(0.5)
