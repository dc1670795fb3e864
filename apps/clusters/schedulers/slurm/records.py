"""From rows of sacct to job records. Pure: rows in, records out; a row that makes no sense is a `BadRow`."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from apps.clusters.schedulers.base import JobRecord, JobState
from apps.clusters.schedulers.slurm.log_paths import fill_in
from apps.clusters.schedulers.slurm.sacct import (
    read_duration,
    read_exit_code,
    read_number,
    read_size,
    read_task_ids,
    read_time,
)

FIELDS = [
    *("JobID", "JobIDRaw", "State", "ExitCode", "Reason", "Submit", "Start", "End", "ElapsedRaw", "TimelimitRaw"),
    *("NodeList", "AllocCPUS", "TotalCPU", "MaxRSS", "ReqMem", "Partition", "Account", "User", "UID"),
    *("JobName", "Comment", "WorkDir", "SubmitLine", "StdOut", "StdErr", "Cluster"),
]

_JOB_ID = re.compile(r"(?P<array>\d+)_(?P<task>\d+|\[[^\]]+\])|\d+\+\d+|\d+")
_NO_TEXT = {"None", "Unknown", "None assigned", "(null)"}

Row = dict[str, str]


class BadRow(ValueError):
    """A row of accounting that cannot be read; the message names the job and the reason."""


class Attempt(NamedTuple):
    """Which attempt of its job a row is, and when the job was first submitted."""

    number: int
    submitted_at: datetime


class JobRows(NamedTuple):
    """The row of one attempt of a job, and those of its steps."""

    job: Row
    steps: list[Row]

    @property
    def identity(self) -> tuple[str, str]:
        """Slurm's own key of an attempt: a job that is requeued gets a new time of submission."""
        return self.job["JobID"], self.job["Submit"]


def group_rows(rows: Iterable[Row]) -> Iterator[JobRows]:
    """Put each job together with its steps, which follow it."""
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


def read_records(rows: JobRows, attempt: Attempt) -> Iterator[JobRecord]:
    """Read one attempt; a row that stands for many tasks never started becomes a record for each. Raises `BadRow`."""
    job = rows.job
    try:
        record = _read_record(rows, attempt)
        _, bracket, tasks = job["JobID"].partition("_[")
        task_ids = read_task_ids(tasks.rstrip("]")) if bracket else []
    except (ValueError, OverflowError) as error:
        raise BadRow(f"job {job['JobID']!r} submitted at {job['Submit']!r}: {error}") from error
    if not bracket:
        yield record
    for task in task_ids:
        yield replace(record, job_id=f"{record.spool_id}_{task}")


def _read_record(rows: JobRows, attempt: Attempt) -> JobRecord:
    job, steps = rows
    job_id = _JOB_ID.fullmatch(job["JobID"])
    if not job_id:
        raise ValueError("no job id")
    exit_code, signal = read_exit_code(job["ExitCode"])
    ended_at = read_time(job["End"])
    if not ended_at:
        raise ValueError(f"no time of end: {job['End']!r}")
    name, _, uid = job["State"].partition(" by ")  # `FAILED`, or `CANCELLED by UID`
    minutes = read_number(job["TimelimitRaw"])
    memory = [size for row in (job, *steps) if (size := read_size(row["MaxRSS"])) is not None]
    host = _text(job["NodeList"])
    record = JobRecord(
        job_id=job["JobID"],
        raw_id=int(job["JobIDRaw"]),
        spool_id=job_id["array"] or job["JobIDRaw"],
        attempt=attempt.number,
        state=JobState(name.lower()),
        exit_code=exit_code,
        signal=signal,
        submitted_at=attempt.submitted_at,
        started_at=read_time(job["Start"]) if host else None,  # a job that never started may bear its end as its start
        ended_at=ended_at,
        host=host,
        cpus=read_number(job["AllocCPUS"]) or 0,
        cpu_seconds=max(read_duration(job["TotalCPU"]), sum(read_duration(step["TotalCPU"]) for step in steps)),
        wall_seconds=read_number(job["ElapsedRaw"]) or 0,
        max_memory_bytes=max(memory, default=None),
        requested_memory_bytes=read_size(job["ReqMem"]),
        time_limit_seconds=None if minutes is None else minutes * 60,
        partition=job["Partition"],
        account=job["Account"],
        user=job["User"],
        name=job["JobName"],
        comment=job["Comment"],
        reason=_text(job["Reason"]),
        cancelled_by={"": "", "0": "root", job["UID"]: job["User"]}.get(uid, uid),  # by name where the row has it
        work_dir=job["WorkDir"],
        submit_line=job["SubmitLine"],
        uid=read_number(job["UID"]),
    )
    return replace(
        record,
        stdout_path=fill_in(_text(job["StdOut"]), record),
        stderr_path=fill_in(_text(job["StdErr"]), record),
    )


def _text(value: str) -> str:
    return "" if value in _NO_TEXT else value
