"""What every scheduler adapter offers: a spool to capture from, accounting to collect, logs to find.

Adapters know nothing of Django: plain values in, frozen dataclasses out. A new scheduler is one module that
passes `tests/contracts/scheduler.py` and is registered in `apps.clusters.schedulers.registry`, or by the
entry point group `opsportal.schedulers`.
"""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

from apps.clusters.schedulers.environment import count_of, variables_in


class JobState(StrEnum):
    """How a finished job, or one attempt of it, ended. The names are Slurm's; other schedulers map to them."""

    COMPLETED = "completed"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    OUT_OF_MEMORY = "out_of_memory"
    NODE_FAIL = "node_fail"
    PREEMPTED = "preempted"
    BOOT_FAIL = "boot_fail"
    DEADLINE = "deadline"
    REQUEUED = "requeued"


class SchedulerError(Exception):
    """The scheduler could not be asked, or answered something that cannot be read. Worth trying again."""


class SubmissionRefused(SchedulerError):
    """The scheduler does not take this job: nothing was submitted, and trying again as it is would be of no use."""


class SpoolError(Exception):
    """A spool entry cannot be captured; the message names its path and the reason."""


class EntryVanished(SpoolError):
    """The scheduler removed the entry before it was read."""


class EntryIncomplete(SpoolError):
    """The scheduler is still writing the entry: look again in a moment."""


class EntryUnreadable(SpoolError):
    """The entry is no regular job entry (symlink, directory where a file should be, no permission, too large)."""


@dataclass(frozen=True, slots=True, order=True)
class SpoolEntry:
    """A job in the spool, found but not yet read."""

    job_id: str
    path: Path


@dataclass(frozen=True, slots=True)
class Identity:
    """Which spool entry this is, without reading it: two of the same job id and identity are one submission."""

    inode: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class SpooledJob:
    """A job as it was in the spool: all bytes as they were written.

    `script` is without the final NUL of Slurm's file. `environment` is in the archive's one form (see
    `environment.py`), which is Slurm's file as it is, its count included. `description` is what else the scheduler
    keeps of the submission, as it keeps it (Torque's `.JB`, HTCondor's ad), and empty where there is nothing. `caveat`
    says in a sentence why the script may not be the one that ran; it is empty where the script is exact.
    """

    job_id: str
    submitted_at: datetime
    script: bytes
    environment: bytes
    description: bytes = field(default=b"", repr=False)
    arguments: str = ""
    user: str = ""
    account: str = ""
    name: str = ""
    caveat: str = ""

    @property
    def variables(self) -> tuple[tuple[bytes, bytes], ...]:
        """The environment's names and values, in their order."""
        return tuple(variables_in(self.environment))[: count_of(self.environment)]


def identity_of(path: Path) -> Identity:
    """Say which directory or file `path` is now; all zero where it is gone."""
    try:
        status = os.lstat(path)
    except OSError:
        return Identity(0, 0)
    return Identity(status.st_ino, status.st_mtime_ns)


class Spool(Protocol):
    """A scheduler's spool directory on this host. Nothing in it is trusted: no symlink is followed."""

    def watched(self) -> Iterable[Path]:
        """Return the directories to watch, flat, that exist now; the set may grow."""

    def scan(self) -> Iterator[SpoolEntry]:
        """List every job entry that is in the spool now, without reading it."""

    def entry_at(self, path: Path) -> SpoolEntry | None:
        """Return the job entry that a file event at `path` is about, or None where it is about no job."""

    def is_index(self, path: Path) -> bool:
        """Whether a file event at `path` is about the list of jobs itself: then `scan` is called again."""

    def identity(self, entry: SpoolEntry) -> Identity:
        """Say which entry this is now, without reading it; all zero where it is gone. Asked at each scan."""

    def read(self, entry: SpoolEntry) -> SpooledJob:
        """Read one entry whole. Raises `EntryIncomplete`, `EntryVanished` or `EntryUnreadable`."""

    def with_environment(self, job: SpooledJob, variables: Iterable[tuple[bytes, bytes]]) -> SpooledJob:
        """Return `job` with its environment written anew from `variables`, in the archive's form.

        Where `description` holds the environment too, its values are replaced there as well: they are masked secrets.
        """


@dataclass(frozen=True, slots=True)
class LogPaths:
    """Where a job's output lies; `source` says how it is known: `scheduler`, `accounting` or `derived`."""

    stdout: Path
    stderr: Path
    source: str


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One attempt of a finished job, from the scheduler's accounting. Times are aware, in UTC.

    `job_id` is as people see it (`86_3`, `87+1`), `raw_id` the scheduler's own number, `spool_id` the id under
    which the job's script lies in the spool (an array has one for all its tasks), `attempt` counts from 1.
    `submitted_at` is the first submission, the same for every attempt, and to the second that of the spool.
    `stdout_path` and `stderr_path` are paths with every pattern filled in, where accounting has them. `uid` is that of
    the user on the cluster, None where accounting does not have it.
    """

    job_id: str
    raw_id: int
    spool_id: str
    attempt: int
    state: JobState
    exit_code: int
    signal: int
    submitted_at: datetime
    started_at: datetime | None
    ended_at: datetime
    host: str = ""
    cpus: int = 0
    cpu_seconds: float = 0.0
    wall_seconds: int = 0
    max_memory_bytes: int | None = None
    requested_memory_bytes: int | None = None
    time_limit_seconds: int | None = None
    partition: str = ""
    account: str = ""
    user: str = ""
    name: str = ""
    comment: str = ""
    reason: str = ""
    cancelled_by: str = ""
    work_dir: str = ""
    submit_line: str = ""
    stdout_path: str = ""
    stderr_path: str = ""
    uid: int | None = None

    def known_paths(self) -> LogPaths | None:
        """Return the paths of its output that accounting has; both streams go to one file where it names one."""
        if not self.stdout_path:
            return None
        stdout, stderr = (
            Path(self.work_dir, path) for path in (self.stdout_path, self.stderr_path or self.stdout_path)
        )
        return LogPaths(stdout, stderr, "accounting")


class Scheduler(Protocol):
    """One batch system. Instances are cheap and hold no connection."""

    name: str

    def __init__(self, cluster: str, options: Mapping[str, str]) -> None: ...

    def spool(self, directory: Path) -> Spool:
        """Return the spool at `directory`. Raises `SpoolError` where it is no such spool."""

    def finished_jobs(self, *, since: datetime, until: datetime) -> Iterator[JobRecord]:
        """Return every attempt that ended in [since, until), cancelled before start included.

        Raises `SchedulerError`. Commands again for the same interval returns the same attempts, and later ones.
        """

    def log_paths(self, record: JobRecord, *, script: bytes, environment: Mapping[str, str]) -> LogPaths | None:
        """Say where the job's output lies: asked of the scheduler, else accounting, else worked out.

        The path is not opened here, and must not be trusted: its reader checks it against the configured roots.
        """


# What only some schedulers offer: an adapter that has the method offers it.


@runtime_checkable
class ReadsArguments(Protocol):
    """A scheduler whose accounting has the arguments of scripts, as part of the command that submitted them."""

    def script_arguments(self, *, submit_line: str, name: str) -> str:
        """Return what followed the script in `submit_line`; `name` is that of the job."""


@dataclass(frozen=True, slots=True)
class Submission:
    """What the scheduler itself knows of a job, before or soon after its end. The fields are those of `JobRecord`."""

    spool_id: str
    submitted_at: datetime
    user: str = ""
    account: str = ""
    name: str = ""
    arguments: str = ""


@runtime_checkable
class KnowsSubmissions(Protocol):
    """A scheduler that can be asked for all the jobs it knows at once."""

    def submissions(self) -> Iterator[Submission]:
        """Yield every job that it knows, one for an array not yet split. Raises `SchedulerError`."""


@dataclass(frozen=True, slots=True)
class StoredCopy(Submission):
    """The scheduler's own copy of a job's script and environment, or None where it has none.

    `script` is as the scheduler gives it. `environment` is in the archive's form, as well as it can be made:
    entries joined by newlines are as the scheduler gives it.
    """

    script: bytes | None = field(default=None, repr=False)
    environment: bytes | None = field(default=None, repr=False)


@runtime_checkable
class KeepsCopies(Protocol):
    """A scheduler whose accounting keeps scripts and environments too."""

    def stored_copies(self, spool_ids: Collection[str]) -> Iterator[StoredCopy]:
        """Yield a copy for each submission that had one of these ids and is in accounting. Raises `SchedulerError`."""


class CurrentState(StrEnum):
    """Where jobs are that have not ended."""

    QUEUED = "queued"
    RUNNING = "running"
    HELD = "held"


@dataclass(frozen=True, slots=True)
class CurrentJobs:
    """So many jobs of one submission that are in the same state; an array has one `spool_id` for all its tasks."""

    spool_id: str
    submitted_at: datetime
    state: CurrentState
    jobs: int
    account: str = ""


#: How many jobs have the same id in the spool, time of submission in seconds since 1970, state and account.
QueueCounts = Counter[tuple[str, int, CurrentState, str]]


def current_jobs_of(counts: QueueCounts) -> Iterator[CurrentJobs]:
    for (spool_id, submitted, state, account), jobs in counts.items():
        yield CurrentJobs(spool_id, datetime.fromtimestamp(submitted, UTC), state, jobs, account)


@runtime_checkable
class KnowsQueue(Protocol):
    """A scheduler that can be asked for what waits and runs."""

    def current_jobs(self) -> Iterator[CurrentJobs]:
        """Yield the jobs that have not ended, by submission and state. Raises `SchedulerError`."""


@dataclass(frozen=True, slots=True)
class BatchJob:
    """An array of jobs to submit, its tasks numbered from 0.

    `name` is of letters, digits, `.`, `_` and `-`, and of this submission alone: by it the jobs are found again.
    `output` is where the tasks write, in the scheduler's own patterns; empty is the scheduler's default.
    `most_at_once` is how many tasks run together, 0 for as many as there is room. What is empty is not asked for.
    """

    name: str
    script: str = field(repr=False)
    tasks: int
    time_limit_seconds: int
    memory_bytes: int
    environment: Mapping[str, str]
    comment: str = ""
    most_at_once: int = 0
    directory: str = ""
    output: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""


@runtime_checkable
class Submits(Protocol):
    """A scheduler to which jobs can be sent."""

    def submit(self, job: BatchJob) -> str:
        """Submit, and return the id that the array has in the spool.

        Raises `SubmissionRefused` where nothing was submitted for sure, `SchedulerError` where that is not known.
        """

    def find_submitted(self, name: str) -> str | None:
        """Return the id of the job of this name, waiting, running or ended; None where there is none for sure.

        Raises `SchedulerError` where that cannot be said.
        """

    def cancel(self, spool_id: str) -> None:
        """Cancel what waits or runs of a job; one that has ended stays as it is. Raises `SchedulerError`."""


@runtime_checkable
class HoldsJobs(Protocol):
    """A scheduler that can keep submitted jobs from starting."""

    def hold(self, spool_id: str) -> None:
        """Keep what waits of a job from starting; what runs goes on, and a job that has ended stays as it is.

        Raises `SchedulerError`.
        """

    def release(self, spool_id: str) -> None:
        """Let what is held of a job start again. Raises `SchedulerError`."""
