"""Convert rows of sacct to records of finished jobs, with stable attempt numbers.

A row that cannot be parsed or is implausible is yielded flagged.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from apps.clusters.schedulers.base import Flagged, JobRecord, JobState, SchedulerError
from apps.clusters.schedulers.plausibility import checked
from apps.clusters.schedulers.slurm.gpus import gpu_figures
from apps.clusters.schedulers.slurm.log_paths import fill_in
from apps.clusters.schedulers.slurm.sacct import (
    Sacct,
    is_duration,
    is_size,
    read_duration,
    read_number,
    read_size,
    read_task_ids,
    read_time,
)

FIELDS = [
    "JobID",
    "JobIDRaw",
    "State",
    "ExitCode",
    "Reason",
    "Submit",
    "Start",
    "End",
    "ElapsedRaw",
    "TimelimitRaw",
    "NodeList",
    "AllocCPUS",
    "TotalCPU",
    "MaxRSS",
    "ReqMem",
    "Partition",
    "Account",
    "User",
    "UID",
    "JobName",
    "Comment",
    "WorkDir",
    "SubmitLine",
    "StdOut",
    "StdErr",
    "Cluster",
    "AllocTRES",
    "TRESUsageInTot",
    "TRESUsageInMax",
    "ConsumedEnergyRaw",
]

_JOB_ID = re.compile(r"(?P<array>\d+)_(?P<task>\d+|\[[^\]]+\])|\d+\+\d+|\d+")
_NO_TEXT = {"None", "Unknown", "None assigned", "(null)"}
# With states given, sacct selects by end time and includes jobs that never started.
_ENDED = (
    "BOOT_FAIL,CANCELLED,COMPLETED,DEADLINE,FAILED,NODE_FAIL,OUT_OF_MEMORY,"
    "PREEMPTED,REQUEUED,TIMEOUT"
)
_FIGURES: dict[str, Callable[[str], object]] = {
    "ElapsedRaw": str.isdecimal,
    "AllocCPUS": str.isdecimal,
    "TotalCPU": is_duration,
    "MaxRSS": is_size,
    "ReqMem": is_size,
}
_GOES_ON = {"REQUEUED", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL"}
_HISTORY_FIELDS = ["JobID", "State", "Submit", "User", "SubmitLine"]
_JOBS_A_QUERY = 500

Row = dict[str, str]


class Attempt(NamedTuple):
    """The number of an attempt, and the time of the job's first submission."""

    number: int
    submitted_at: datetime


class JobRows(NamedTuple):
    """The rows of an attempt and of its steps."""

    job: Row
    steps: list[Row]

    @property
    def identity(self) -> tuple[str, str]:
        """Slurm's key of an attempt: requeuing sets a new submission time."""
        return self.job["JobID"], self.job["Submit"]


Attempts = dict[tuple[str, str], Attempt]


def finished_jobs(
    sacct: Sacct, *, cluster: str, since: datetime, until: datetime, settled_before: datetime
) -> Iterator[JobRecord | Flagged]:
    """Yield every attempt that ended in [since, until), and rows that cannot be parsed.

    Raises `SchedulerError` if the jobs belong to a cluster with another name in accounting: under a
    mistyped name, all jobs of another cluster would be collected again.

    The end of a short job may reach the database before its start; until then the row lacks name,
    directory and array. Such a row is held back until it is complete or ended before
    `settled_before`.
    """
    options = (
        f"--state={_ENDED}",
        f"--starttime={since:%Y-%m-%dT%H:%M:%S}",
        f"--endtime={until:%Y-%m-%dT%H:%M:%S}",
    )

    def read_due(*selection: str) -> Iterator[JobRows]:
        for rows in group_rows(sacct.rows(FIELDS, *options, *selection)):
            _check_cluster(rows.job, cluster)
            if _is_due(rows.job, since, until, settled_before):
                yield rows

    due = list(read_due())
    known = {rows.identity for rows in due}
    for first in range(0, len(due), _JOBS_A_QUERY):
        batch = due[first : first + _JOBS_A_QUERY]
        attempts = attempts_of(sacct, batch)
        for rows in batch:
            if rows.identity in attempts:
                yield from read_records(rows, attempts)
        missing = [rows for rows in batch if rows.identity not in attempts]
        if not missing:
            continue

        # Slurm splits a waiting array that was cancelled into its tasks: they have rows of their
        # own a moment later, and the row of the array is gone.
        again = list(read_due(f"--jobs={_selection(missing)}"))
        attempts = attempts_of(sacct, again)
        new = [rows for rows in again if rows.identity not in known]
        known.update(rows.identity for rows in again)
        for rows in (*new, *_not_split(missing, again)):
            if rows.identity in attempts:
                yield from read_records(rows, attempts)
            else:
                yield Flagged(_raw(rows), "The job is not in its own history.")


def _is_due(job: Row, since: datetime, until: datetime, settled_before: datetime) -> bool:
    """Return whether a row is to be read now; also true without an end, so that it is flagged."""
    ended_at = read_time(job["End"])
    if ended_at is None:
        return True
    is_complete = bool(job["WorkDir"])
    return since <= ended_at < until and (is_complete or ended_at < settled_before)


def _not_split(missing: Iterable[JobRows], again: Sequence[JobRows]) -> list[JobRows]:
    """Return the missing rows, except rows of arrays that were split, as read `again`."""
    identities = {rows.identity for rows in again}
    split_arrays = {_array_of(rows.job) for rows in again}
    not_split = []
    for rows in missing:
        if rows.identity in identities or _array_of(rows.job) not in split_arrays:
            not_split.append(rows)
    return not_split


def _array_of(job: Row) -> str:
    return job["JobID"].partition("_")[0]


def _check_cluster(job: Row, cluster: str) -> None:
    own_name = job["Cluster"] or cluster
    if own_name.casefold() != cluster.casefold():
        raise SchedulerError(
            f"Slurm calls this cluster “{own_name}”, but here it is “{cluster}”: nothing was "
            "collected. Correct CAPTURE_CLUSTER on the scheduler's host and remove this cluster "
            "with `manage.py cluster remove`, or, if the names differ on purpose, set its option "
            f"`cluster_name` to “{own_name}”."
        )


def attempts_of(sacct: Sacct, jobs: Iterable[JobRows]) -> Attempts:
    """Query the history of these jobs and number their attempts."""
    selection = _selection(jobs)
    if not selection:
        return {}
    return number_attempts(sacct.rows(_HISTORY_FIELDS, "--allocations", f"--jobs={selection}"))


def _selection(jobs: Iterable[JobRows]) -> str:
    """Return the value of sacct's `--jobs` for these jobs."""
    return ",".join(sorted({selector_of(rows.job) for rows in jobs}))


def number_attempts(rows: Iterable[Row]) -> Attempts:
    """Number the attempts of each job from 1.

    A row continues the previous one if that was interrupted and the submission is the same.
    Otherwise the job ID was reused, and the row starts another job.
    """
    numbered: Attempts = {}
    submissions = []
    for row in rows:
        if submitted_at := read_time(row["Submit"]):
            submissions.append((row["JobID"], submitted_at, row))
    submissions.sort(key=itemgetter(0, 1))
    for job_id, history in groupby(submissions, key=itemgetter(0)):
        before: Row | None = None
        for _, submitted_at, row in history:
            attempt = Attempt(1, submitted_at)
            is_same = before and all(before[name] == row[name] for name in ("User", "SubmitLine"))
            if before and is_same and before["State"] in _GOES_ON:
                earlier = numbered[job_id, before["Submit"]]
                attempt = Attempt(earlier.number + 1, earlier.submitted_at)
            numbered[job_id, row["Submit"]] = attempt
            before = row
    return numbered


def selector_of(job: Row) -> str:
    """Return the sacct selector of a job: a task by its array, any other job by its raw number."""
    if "[" in job["JobID"] or "_" not in job["JobID"]:
        return job["JobIDRaw"]
    return job["JobID"]


def group_rows(rows: Iterable[Row]) -> Iterator[JobRows]:
    """Group each job with the steps that follow it."""
    current: JobRows | None = None
    for row in rows:
        if current and row["JobID"].startswith(current.job["JobID"] + "."):
            current.steps.append(row)
            continue
        if current:
            yield current
        current = JobRows(row, [])
    if current:
        yield current


def read_records(rows: JobRows, attempts: Attempts) -> Iterator[JobRecord | Flagged]:
    """Yield the record of an attempt, or one per task if the tasks never started.

    The row of an array that was cancelled may still name a task that has just started, and that
    has a row of its own among the `attempts`.
    """
    job = rows.job
    attempt = attempts[rows.identity]
    try:
        record = _read_record(rows, attempt)
        _, bracket, tasks = job["JobID"].partition("_[")
        task_ids = read_task_ids(tasks.rstrip("]")) if bracket else []
    except (ValueError, OverflowError) as error:
        yield Flagged(_raw(rows), f"The row cannot be read: {error}")
        return
    if not bracket:
        yield checked(record, lambda: _raw(rows), _unreadable(rows))
    if not task_ids:
        return
    with_own_row = set()
    for (job_id, _), own_attempt in attempts.items():
        if own_attempt.submitted_at >= attempt.submitted_at:
            with_own_row.add(job_id)
    for task in task_ids:
        job_id = f"{record.spool_id}_{task}"
        if job_id not in with_own_row:
            yield replace(record, job_id=job_id)


def _raw(rows: JobRows) -> str:
    return json.dumps([rows.job, *rows.steps])


def _unreadable(rows: JobRows) -> list[str]:
    """Return a sentence for each figure that is not a number with its unit."""
    doubts = []
    for name, reads in _FIGURES.items():
        values = [row[name] for row in (rows.job, *rows.steps)]
        if any(value and not reads(value) for value in values):
            doubts.append(f"{name} cannot be read.")
    return doubts


def _read_record(rows: JobRows, attempt: Attempt) -> JobRecord:
    job, steps = rows
    job_id = _JOB_ID.fullmatch(job["JobID"])
    if not job_id:
        raise ValueError("no job ID")
    exit_code, _, signal = job["ExitCode"].partition(":")
    ended_at = read_time(job["End"])
    if not ended_at:
        raise ValueError(f"no end time: {job['End']!r}")
    # The state is `FAILED`, or `CANCELLED by UID`.
    name, _, uid = job["State"].partition(" by ")
    minutes = read_number(job["TimelimitRaw"])
    memory_sizes = []
    for row in (job, *steps):
        size = read_size(row["MaxRSS"])
        if size is not None:
            memory_sizes.append(size)
    steps_cpu_seconds = sum(read_duration(step["TotalCPU"]) for step in steps)
    host = _text(job["NodeList"])
    started_at = None
    # A job that never started has no host, and may have its end as start.
    if host:
        started_at = read_time(job["Start"])
    # A user who cancelled is known by name only if it is root or the owner.
    users_by_uid = {job["UID"]: job["User"], "": "", "0": "root"}
    record = JobRecord(
        job_id=job["JobID"],
        raw_id=int(job["JobIDRaw"]),
        spool_id=job_id["array"] or job["JobIDRaw"],
        attempt=attempt.number,
        state=JobState(name.lower()),
        exit_code=int(exit_code),
        signal=int(signal or 0),
        submitted_at=attempt.submitted_at,
        started_at=started_at,
        ended_at=ended_at,
        host=host,
        cpus=read_number(job["AllocCPUS"]) or 0,
        cpu_seconds=max(read_duration(job["TotalCPU"]), steps_cpu_seconds),
        wall_seconds=read_number(job["ElapsedRaw"]) or 0,
        max_memory_bytes=max(memory_sizes, default=None),
        requested_memory_bytes=read_size(job["ReqMem"]),
        time_limit_seconds=None if minutes is None else minutes * 60,
        partition=job["Partition"],
        account=job["Account"],
        user=job["User"],
        name=job["JobName"],
        comment=job["Comment"],
        reason=_text(job["Reason"]),
        cancelled_by=users_by_uid.get(uid, uid),
        work_dir=job["WorkDir"],
        submit_line=job["SubmitLine"],
        uid=read_number(job["UID"]),
    )
    return replace(
        record,
        **gpu_figures(job, steps),
        stdout_path=fill_in(_text(job["StdOut"]), record),
        stderr_path=fill_in(_text(job["StdErr"]), record),
    )


def _text(value: str) -> str:
    return "" if value in _NO_TEXT else value
