"""Finished jobs from Slurm's accounting, each attempt with a number that never changes."""

import logging
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby
from operator import itemgetter

from apps.clusters.schedulers.base import JobRecord, SchedulerError
from apps.clusters.schedulers.slurm.records import FIELDS, Attempt, BadRow, JobRows, Row, group_rows, read_records
from apps.clusters.schedulers.slurm.sacct import Sacct, read_time

logger = logging.getLogger(__name__)

# With states given, sacct selects by the time of end, and jobs that never started are among them.
_ENDED = "BOOT_FAIL,CANCELLED,COMPLETED,DEADLINE,FAILED,NODE_FAIL,OUT_OF_MEMORY,PREEMPTED,REQUEUED,TIMEOUT"
_GOES_ON = {"REQUEUED", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL"}
_HISTORY_FIELDS = ["JobID", "State", "Submit", "User", "SubmitLine"]
_JOBS_A_QUERY = 500

Attempts = dict[tuple[str, str], Attempt]


def finished_jobs(
    sacct: Sacct, *, cluster: str, since: datetime, until: datetime, settled_before: datetime
) -> Iterator[JobRecord]:
    """Yield every attempt that ended in [since, until). A row that cannot be read is logged and left out.

    Raises `SchedulerError` if the jobs are those of a cluster that accounting calls otherwise than `cluster`: under a
    mistyped name all jobs of another one would be collected again.

    The end of a quick job may reach the database before its start does: for a while the row has neither name,
    directory nor array. Such a row is held back until it is whole, or ended before `settled_before`.
    """
    times = (f"--starttime={since:%Y-%m-%dT%H:%M:%S}", f"--endtime={until:%Y-%m-%dT%H:%M:%S}")
    jobs = group_rows(sacct.rows(FIELDS, f"--state={_ENDED}", *times))
    due = []
    for rows in jobs:
        own_name = rows.job["Cluster"] or cluster
        if own_name.casefold() != cluster.casefold():
            raise SchedulerError(
                f"Slurm calls this cluster “{own_name}”, but here it is “{cluster}”: nothing was collected. Correct"
                " CAPTURE_CLUSTER on the scheduler's host and remove this cluster with `manage.py cluster remove`, or,"
                f" if the names differ on purpose, set its option `cluster_name` to “{own_name}”."
            )
        ended_at = read_time(rows.job["End"])  # a row without an end is let through, to be reported
        if ended_at is None or (since <= ended_at < until and (rows.job["WorkDir"] or ended_at < settled_before)):
            due.append(rows)
    for first in range(0, len(due), _JOBS_A_QUERY):
        some = due[first : first + _JOBS_A_QUERY]
        yield from _read(some, attempts_of(sacct, some))


def attempts_of(sacct: Sacct, jobs: Iterable[JobRows]) -> Attempts:
    """Ask for the whole history of some jobs, and number the attempts of each."""
    ids = sorted({selector_of(rows.job) for rows in jobs})
    return number_attempts(sacct.rows(_HISTORY_FIELDS, "--allocations", f"--jobs={','.join(ids)}")) if ids else {}


def number_attempts(rows: Iterable[Row]) -> Attempts:
    """Number the attempts of each job from 1.

    A row goes on from the one before it where that was interrupted and the submission is the same; else the job id
    was given out a second time, and this is another job.
    """
    numbered: Attempts = {}
    submissions = [(row["JobID"], submitted_at, row) for row in rows if (submitted_at := read_time(row["Submit"]))]
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
    """Return how sacct is asked for just this job: a task by its array, anything else by its raw number."""
    return job["JobIDRaw"] if "[" in job["JobID"] or "_" not in job["JobID"] else job["JobID"]


def _read(jobs: Iterable[JobRows], attempts: Attempts) -> Iterator[JobRecord]:
    for rows in jobs:
        try:
            if rows.identity not in attempts:
                raise BadRow(f"job {rows.job['JobID']!r} submitted at {rows.job['Submit']!r}: not in its own history")
            yield from read_records(rows, attempts[rows.identity])
        except BadRow as error:
            logger.error("accounting row left out: %s", error)
