"""Asking slurmctld, by squeue, for all the jobs that it knows: those that wait or run, and ended ones for MinJobAge."""

from collections import Counter
from collections.abc import Iterator

from apps.clusters.schedulers.base import CurrentJobs, CurrentState, Submission
from apps.clusters.schedulers.commands import Commands
from apps.clusters.schedulers.slurm.output_paths import arguments_of_command
from apps.clusters.schedulers.slurm.sacct import new_delimiter, split_rows
from apps.clusters.schedulers.slurm.values import read_time

# Id of the whole array or of the one job, time of submission, user, account, job name, command.
_FIELDS = ("%F", "%V", "%u", "%a", "%j", "%o")
# Id of the whole array or of the one job, time of submission, account, state, why it waits.
_CURRENT_FIELDS = ("%F", "%V", "%a", "%T", "%r")
_NOT_ENDED = "PENDING,CONFIGURING,RUNNING,SUSPENDED,COMPLETING"
_HELD_FOR = {"JobHeldUser", "JobHeldAdmin"}


def current_jobs(commands: Commands) -> Iterator[CurrentJobs]:
    """Yield what has not ended by one command, each task of an array counted. Raises `SchedulerError`."""
    delimiter = new_delimiter()
    form = "".join(field + delimiter for field in _CURRENT_FIELDS)
    output = commands.run("squeue", "--all", "--array", f"--states={_NOT_ENDED}", "--noheader", f"--format={form}")
    found: Counter[tuple[str, str, str, CurrentState]] = Counter()
    for spool_id, submitted, account, state, reason in split_rows(output, delimiter, len(_CURRENT_FIELDS)):
        waits = CurrentState.HELD if reason in _HELD_FOR or "HOLD" in state else CurrentState.QUEUED
        found[
            spool_id, submitted, account, waits if state == "PENDING" or "HOLD" in state else CurrentState.RUNNING
        ] += 1
    for (spool_id, submitted, account, now), jobs in found.items():
        submitted_at = read_time(submitted)
        if submitted_at:
            yield CurrentJobs(spool_id, submitted_at, now, jobs, account)


def known_submissions(commands: Commands) -> Iterator[Submission]:
    """Yield every job by one command. Names and arguments are free text, so fields end as those of `sacct` do.

    Raises `SchedulerError`. A requeued job has the time of its last submission.
    """
    delimiter = new_delimiter()
    form = "".join(field + delimiter for field in _FIELDS)
    output = commands.run("squeue", "--all", "--states=all", "--noheader", f"--format={form}")
    for spool_id, submitted, user, account, name, command in split_rows(output, delimiter, len(_FIELDS)):
        submitted_at = read_time(submitted)
        if submitted_at:
            arguments = "" if command == "(null)" else arguments_of_command(command, name=name)
            yield Submission(spool_id, submitted_at, user=user, account=account, name=name, arguments=arguments)
