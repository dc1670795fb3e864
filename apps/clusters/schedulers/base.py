"""The interface of scheduler adapters: capture, accounting, logs and submission.

Adapters do not import Django: they take plain values and return frozen dataclasses. An adapter
passes `tests/contracts/scheduler.py` and is registered in `registry.py` or by the entry point group
`opsportal.schedulers`.
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
    """How an attempt of a job ended.

    The names are Slurm's; other schedulers map their states to them.
    """

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

    @property
    def text(self) -> str:
        """The state as pages write it within a sentence, such as `out of memory`."""
        return self.value.replace("_", " ")


class SchedulerError(Exception):
    """The scheduler did not respond or its response is invalid. A later attempt may succeed."""


class SubmissionRefused(SchedulerError):
    """The scheduler rejected the job.

    Nothing was submitted, and retrying the same job is pointless.
    """


class CommandRefused(SchedulerError):
    """The scheduler rejected a command on a job. Repeating it is pointless."""


class SpoolError(Exception):
    """A spool entry cannot be captured; the message names its path and the reason."""


class EntryVanished(SpoolError):
    """The scheduler removed the entry before it could be read."""


class EntryIncomplete(SpoolError):
    """The scheduler is still writing the entry. Retry in a moment."""


class EntryUnreadable(SpoolError):
    """The entry is not a regular job entry.

    It may be a symlink, a directory in place of a file, too large, or not readable.
    """


@dataclass(frozen=True, slots=True, order=True)
class SpoolEntry:
    """A job in the spool that has not been read yet."""

    job_id: str
    path: Path


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a spool entry, known without reading the entry.

    Entries with the same job ID and identity are the same submission.
    """

    inode: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class SpooledJob:
    """A job exactly as it was in the spool.

    `script` lacks the trailing NUL of Slurm's file. `environment` has the format of the archive,
    which is that of Slurm's file; see `environment.py`. `description` is any other record of the
    submission that the scheduler keeps, unchanged: Torque's `.JB`, HTCondor's ad. `caveat` is a
    sentence on why the script may differ from the one that ran; empty if the script is exact.
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
        """The environment's names and values, in order."""
        return tuple(variables_in(self.environment))[: count_of(self.environment)]


def identity_of(path: Path) -> Identity:
    """Return the current identity of a directory or file; all zeros if it no longer exists."""
    try:
        status = os.lstat(path)
    except OSError:
        return Identity(0, 0)
    return Identity(status.st_ino, status.st_mtime_ns)


class Spool(Protocol):
    """A scheduler's spool directory on this host.

    Its content is untrusted: symlinks are not followed.
    """

    def watched(self) -> Iterable[Path]:
        """Return the existing directories to watch, without recursion; more may appear later."""

    def scan(self) -> Iterator[SpoolEntry]:
        """Yield every job entry in the spool, without reading it."""

    def entry_at(self, path: Path) -> SpoolEntry | None:
        """Return the job entry that a file event at `path` concerns, or None."""

    def is_index(self, path: Path) -> bool:
        """Return whether a file event at `path` may change the list of jobs.

        `scan` must then run again.
        """

    def identity(self, entry: SpoolEntry) -> Identity:
        """Return the identity of an entry without reading it; all zeros if the entry is gone.

        Called at every scan.
        """

    def read(self, entry: SpoolEntry) -> SpooledJob:
        """Read an entry completely.

        Raises `EntryIncomplete`, `EntryVanished` or `EntryUnreadable`.
        """

    def with_environment(
        self, job: SpooledJob, variables: Iterable[tuple[bytes, bytes]]
    ) -> SpooledJob:
        """Return `job` with these environment `variables`, whose secrets are masked.

        If `description` contains the environment too, the values are also replaced there.
        """


@dataclass(frozen=True, slots=True)
class LogPaths:
    """Paths of a job's output.

    `source` says where they come from: `scheduler`, `accounting` or `derived`.
    """

    stdout: Path
    stderr: Path
    source: str


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One attempt of a finished job, from the scheduler's accounting. Times are aware, in UTC.

    * `job_id`: the ID that users see (`86_3`, `87+1`).
    * `raw_id`: the scheduler's own number.
    * `spool_id`: the ID of the script in the spool, shared by all tasks of an array.
    * `attempt`: counts from 1.
    * `submitted_at`: the first submission, the same for all attempts. It equals that of the spool
      to the second.
    * `stdout_path`, `stderr_path`: with patterns expanded; empty if unknown.
    * `uid`: the user's ID on the cluster, if known.
    * `site`: the computing centre where the job ran, if a record can name another one than the
      cluster's.
    * `cpu_model`: empty unless the record itself has it.
    * `files_*`, `bytes_*`: what the job transferred.
    * `gpus`: how many it was given; None if unknown.
    * `gpu_share`: the mean use of these, as a share of 1.
    * `max_gpu_memory_bytes`: the most that one of its tasks used.
    * `energy_joules`: measured by the scheduler, never modelled.
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
    site: str = ""
    cpu_model: str = ""
    host_address: str = ""
    suspended_seconds: int = 0
    files_in: int | None = None
    files_out: int | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None
    gpus: int | None = None
    gpu_share: float | None = None
    max_gpu_memory_bytes: int | None = None
    energy_joules: int | None = None

    def known_paths(self) -> LogPaths | None:
        """Return the output paths known to accounting, if any.

        A single path means one file for both streams.
        """
        if not self.stdout_path:
            return None
        stdout = Path(self.work_dir, self.stdout_path)
        stderr = Path(self.work_dir, self.stderr_path or self.stdout_path)
        return LogPaths(stdout, stderr, "accounting")


@dataclass(frozen=True, slots=True)
class Flagged:
    """A record that is wrong, with the reason.

    `record` is the part that can be stored; None if nothing can. `reason` is a sentence without
    values of the record, because records are counted by reason.
    """

    raw: str
    reason: str
    record: JobRecord | None = None


class Scheduler(Protocol):
    """One batch system. Instances are cheap and hold no connection."""

    name: str

    def __init__(self, cluster: str, options: Mapping[str, str]) -> None: ...

    def spool(self, directory: Path) -> Spool:
        """Return the spool at `directory`.

        Raises `SpoolError` if it is not a spool of this scheduler.
        """

    def finished_jobs(self, *, since: datetime, until: datetime) -> Iterator[JobRecord | Flagged]:
        """Return every attempt that ended in [since, until).

        This includes jobs cancelled before they started. A record that cannot be parsed is flagged
        and does not affect the others. Raises `SchedulerError`. A second call for the same interval
        returns the same attempts, and late ones.
        """

    def log_paths(
        self, record: JobRecord, *, script: bytes, environment: Mapping[str, str]
    ) -> LogPaths | None:
        """Return the output paths of a job: from the scheduler, from accounting, or derived.

        The paths are untrusted and not opened: the reader checks them against the configured roots.
        """


# Optional capabilities: an adapter has a capability if it has the methods.


@runtime_checkable
class ReadsArguments(Protocol):
    """A scheduler whose accounting has the script arguments as part of the submit command."""

    def script_arguments(self, *, submit_line: str, name: str) -> str:
        """Return the arguments after the script in `submit_line`; `name` is the job's name."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A job known to the scheduler, before or soon after its end.

    The fields are those of `JobRecord`.
    """

    spool_id: str
    submitted_at: datetime
    user: str = ""
    account: str = ""
    name: str = ""
    arguments: str = ""


@runtime_checkable
class KnowsSubmissions(Protocol):
    """A scheduler that can list all its jobs."""

    def submissions(self) -> Iterator[Submission]:
        """Yield every known job; an unsplit array counts as one job. Raises `SchedulerError`."""


@dataclass(frozen=True, slots=True)
class StoredCopy(Submission):
    """The scheduler's own copy of a job's script and environment; None where it has no copy.

    `script` is unchanged. `environment` has the format of the archive, as far as it can be restored
    from text lines.
    """

    script: bytes | None = field(default=None, repr=False)
    environment: bytes | None = field(default=None, repr=False)


@runtime_checkable
class KeepsCopies(Protocol):
    """A scheduler whose accounting stores scripts and environments."""

    def stored_copies(self, spool_ids: Collection[str]) -> Iterator[StoredCopy]:
        """Yield a copy of each submission in accounting with one of these IDs.

        Raises `SchedulerError`.
        """


class CurrentState(StrEnum):
    """The state of unfinished jobs."""

    QUEUED = "queued"
    RUNNING = "running"
    HELD = "held"


@dataclass(frozen=True, slots=True)
class CurrentJobs:
    """The number of jobs of a submission in one state.

    All tasks of an array share one `spool_id`. `reason` is why they wait or are held, as the
    scheduler writes it.
    """

    spool_id: str
    submitted_at: datetime
    state: CurrentState
    jobs: int
    account: str = ""
    reason: str = ""


#: Number of jobs by spool ID, submission time in seconds since 1970, state, account and reason.
QueueCounts = Counter[tuple[str, int, CurrentState, str, str]]


def current_jobs_of(counts: QueueCounts) -> Iterator[CurrentJobs]:
    for (spool_id, submitted, state, account, reason), jobs in counts.items():
        yield CurrentJobs(
            spool_id, datetime.fromtimestamp(submitted, UTC), state, jobs, account, reason
        )


class HostState(StrEnum):
    """What a host can do for jobs, as its scheduler says; free and busy hosts are both up."""

    UP = "up"
    DRAINING = "draining"
    DRAINED = "drained"
    DOWN = "down"
    SILENT = "silent"
    MAINTENANCE = "maintenance"
    REBOOTING = "rebooting"
    OFF = "off"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class HostFacts:
    """A host as the scheduler lists it; fields are empty or None if unknown.

    `state_words` is the state and `reason` the reason as the scheduler words them.
    """

    name: str
    cpu_model: str = ""
    address: str = ""
    cores: int | None = None
    memory_bytes: int | None = None
    state: HostState | None = None
    state_words: str = ""
    reason: str = ""
    booted_at: datetime | None = None


@runtime_checkable
class KnowsHosts(Protocol):
    """A scheduler that can list its hosts."""

    def hosts(self) -> Iterator[HostFacts]:
        """Yield each host once. Raises `SchedulerError`."""


@runtime_checkable
class KnowsQueue(Protocol):
    """A scheduler that can list queued and running jobs."""

    def current_jobs(self) -> Iterator[CurrentJobs | Flagged]:
        """Yield unfinished jobs by submission and state, and flagged records that cannot be parsed.

        Raises `SchedulerError`.
        """


@dataclass(frozen=True, slots=True)
class BatchJob:
    """An array of jobs to submit, with tasks numbered from 0.

    `name` consists of letters, digits, `.`, `_` and `-`; it is unique, because submitted jobs are
    looked up by name. `output` is the output path in the scheduler's own patterns; empty for its
    default. `most_at_once` limits concurrent tasks; 0 for no limit. `host` is the only host to run
    on, `avoided_hosts` are hosts not to run on. A job that has not ended `deadline_seconds` after
    its submission ends then, also in the queue. Empty values are not requested.
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
    host: str = ""
    avoided_hosts: tuple[str, ...] = ()
    deadline_seconds: int = 0


@runtime_checkable
class Submits(Protocol):
    """A scheduler to which jobs can be submitted."""

    def submit(self, job: BatchJob) -> str:
        """Submit the job and return the spool ID of the array.

        Raises `SubmissionRefused` if nothing was submitted, `SchedulerError` if that is unknown.
        """

    def find_submitted(self, name: str) -> str | None:
        """Return the spool ID of the job with this name; None if the job certainly does not exist.

        Finds queued, running and finished jobs. Raises `SchedulerError` if the answer is unknown.
        """

    def cancel(self, spool_id: str) -> None:
        """Cancel queued and running tasks of a job; does nothing for a finished job.

        Raises `SchedulerError`.
        """


@dataclass(frozen=True)
class OwnedJob:
    """A job to submit again as its owner.

    `name` is unique. `environment` has variables terminated by NUL. `first_id` is the ID of the
    failed job or of its array, and `task` its number in the array. Empty values are not requested.
    """

    name: str
    owner: str
    first_id: str
    script: bytes = field(repr=False)
    environment: bytes = field(repr=False)
    arguments: tuple[str, ...] = ()
    task: int | None = None
    time_limit_seconds: int = 0
    memory_bytes: int = 0
    account: str = ""
    partition: str = ""
    directory: str = ""
    avoided_hosts: tuple[str, ...] = ()


@runtime_checkable
class SubmitsAsOwner(Protocol):
    """A scheduler to which the portal can submit as other users, if its options allow that."""

    @property
    def submits_as_owner(self) -> bool: ...

    def submit_as_owner(self, job: OwnedJob) -> str:
        """Submit a job as its owner and return the new ID.

        Refused while the first job is queued or running. Raises as `submit`.
        """

    def find_submitted(self, name: str) -> str | None:
        """Return the ID of the job with this name, as `Submits` does."""


@runtime_checkable
class HoldsJobs(Protocol):
    """A scheduler that can hold submitted jobs."""

    def hold(self, spool_id: str) -> None:
        """Hold queued tasks of a job; running tasks continue. Does nothing for a finished job.

        Raises `SchedulerError`.
        """

    def release(self, spool_id: str) -> None:
        """Release held tasks of a job.

        Raises `CommandRefused` if the scheduler does not allow it, else `SchedulerError`.
        """
