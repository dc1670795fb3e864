"""List all jobs known to slurmctld: queued, running, and finished within MinJobAge."""

from collections import Counter
from collections.abc import Iterator, Sequence

from apps.clusters.schedulers.base import (
    CurrentJobs,
    CurrentState,
    QueueCounts,
    Submission,
    current_jobs_of,
)
from apps.clusters.schedulers.commands import Commands
from apps.clusters.schedulers.slurm.output_options import arguments_of_command
from apps.clusters.schedulers.slurm.sacct import new_delimiter, read_number, read_time, split_rows

# ID of the array or job, submission time, user, account, job name, command.
_FIELDS = ("%F", "%V", "%u", "%a", "%j", "%o")
# ID of the array or job, submission time, account, state, reason, priority.
_CURRENT_FIELDS = ("%F", "%V", "%a", "%T", "%r", "%Q")
#: Without COMPLETING: such a job has ended, and accounting reports it.
_NOT_ENDED = "PENDING,CONFIGURING,RUNNING,SUSPENDED,SPECIAL_EXIT,RESV_DEL_HOLD"
#: States of jobs that wait or are held: a job that was requeued by `scontrol requeuehold
#: State=SpecialExit` is held.
_WAITING = {"PENDING", "SPECIAL_EXIT"}
#: Slurm reserves this priority for held jobs (scontrol(1), "hold"). Their reason need not be
#: JobHeldUser or JobHeldAdmin: it may be "job requeued in held state" or "BadConstraints".
_PRIORITY_OF_HELD = "0"


def current_jobs(commands: Commands) -> Iterator[CurrentJobs]:
    """Yield the unfinished jobs, including each task of an array, with one command.

    Raises `SchedulerError`.
    """
    counts: QueueCounts = Counter()
    rows = _rows(commands, _CURRENT_FIELDS, "--array", f"--states={_NOT_ENDED}")
    for spool_id, submitted, account, state, reason, priority in rows:
        seconds = read_number(submitted)
        if seconds:
            current_state = _current_state(state, priority)
            if current_state == CurrentState.RUNNING:
                why = ""
            else:
                why = reason.partition(",")[0]
            counts[spool_id, seconds, current_state, account, why] += 1
    return current_jobs_of(counts)


def _current_state(state: str, priority: str) -> CurrentState:
    """Return the state of a job from its state and priority in squeue."""
    if "HOLD" in state:
        return CurrentState.HELD
    if state not in _WAITING:
        return CurrentState.RUNNING
    if priority == _PRIORITY_OF_HELD:
        return CurrentState.HELD
    return CurrentState.QUEUED


def known_submissions(commands: Commands) -> Iterator[Submission]:
    """Yield every job with one command; a requeued job has its latest submission time.

    Raises `SchedulerError`.
    """
    for spool_id, submitted, user, account, name, command in _rows(
        commands, _FIELDS, "--states=all"
    ):
        if submitted_at := read_time(submitted):
            if command == "(null)":
                arguments = ""
            else:
                arguments = arguments_of_command(command, name=name)
            yield Submission(
                spool_id, submitted_at, user=user, account=account, name=name, arguments=arguments
            )


def _rows(commands: Commands, fields: Sequence[str], *options: str) -> Iterator[list[str]]:
    """Yield rows of fields, delimited as for `sacct` because names and arguments are free text."""
    delimiter = new_delimiter()
    form = "".join(field + delimiter for field in fields)
    output = commands.run("squeue", "--all", *options, "--noheader", f"--format={form}")
    return split_rows(output, delimiter, len(fields))
