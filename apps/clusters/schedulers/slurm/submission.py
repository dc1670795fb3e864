"""Submit jobs to Slurm with sbatch, find, hold and cancel them."""

import math
import re
import tempfile

from apps.clusters.schedulers.base import BatchJob, SchedulerError, SubmissionRefused
from apps.clusters.schedulers.commands import CommandFailed, Commands

LOOK_BACK = "now-30days"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
_MIB = 2**20
#: Errors of slurmctld that mean the job was rejected. After any other, it may have been submitted.
_REFUSED = re.compile(
    r"Batch job submission failed: "
    r"(Invalid|Requested|Job violates|User's group|Access/permission|Memory required|More processors|Unspecified)"
)
#: Errors of scontrol for a finished job, and for one that slurmctld has purged.
_ENDED = re.compile(r"already finished|Invalid job id specified")


def submit(commands: Commands, job: BatchJob) -> str:
    """Submit a script on the standard input of sbatch, and return the job ID.

    Raises `SubmissionRefused`, or `SchedulerError` if slurmctld may have accepted the job.
    """
    check_name(job.name)
    if any("\0" in text for text in (job.script, *job.environment.values())):
        raise SubmissionRefused("sbatch: a script and its variables cannot hold a NUL")
    try:
        with tempfile.TemporaryFile() as script:  # not a pipe: if this process were killed, half a script would run
            script.write(job.script.encode())
            script.seek(0)
            said = commands.submit("sbatch", *options_of(job), script=script, variables=job.environment)
    except CommandFailed as error:
        if _REFUSED.search(error.stderr):
            raise SubmissionRefused(str(error)) from error
        raise
    spool_id = said.strip().partition(";")[0]
    if not spool_id.isdigit():
        raise SchedulerError(f"sbatch: answered {said[:200]!r}")
    return spool_id


def options_of(job: BatchJob) -> list[str]:
    at_once = f"%{job.most_at_once}" if job.most_at_once else ""
    options = [
        "--parsable",
        f"--job-name={job.name}",
        f"--array=0-{job.tasks - 1}{at_once}",
        f"--time={math.ceil(job.time_limit_seconds / 60)}",
        f"--mem={math.ceil(job.memory_bytes / _MIB)}M",
        f"--export={','.join(sorted(job.environment)) or 'NONE'}",
    ]
    more = {
        "comment": job.comment,
        "chdir": job.directory,
        "output": job.output,
        "account": job.account,
        "partition": job.partition,
        "qos": job.qos,
        "nodelist": job.host,
        "exclude": job.avoided_host,
    }
    return options + [f"--{name}={value}" for name, value in more.items() if value]


def find_submitted(commands: Commands, name: str) -> str | None:
    """Return the ID of the job of this name. Raises `SchedulerError` if squeue or sacct fails."""
    check_name(name)
    listed = commands.run("squeue", "--all", "--states=all", "--noheader", f"--name={name}", "--format=%F")
    if not listed.strip():
        words = ("-nPX", "--allusers", f"--starttime={LOOK_BACK}", f"--name={name}", "--format=JobID")
        listed = commands.run("sacct", *words)
    ids = sorted({line.strip().partition("_")[0] for line in listed.splitlines() if line.strip()}, key=int)
    return ids[0] if ids else None


def control(commands: Commands, program: str, word: str, *, spool_id: str) -> None:
    """Cancel, hold or release all tasks of a job; no effect on a finished job. Raises `SchedulerError`."""
    if not spool_id.isdigit():
        raise SchedulerError(f"{program}: {spool_id!r} is no id of a job")
    try:
        commands.run(program, word, spool_id)
    except CommandFailed as error:
        if program == "scancel" or not _ENDED.search(error.stderr):
            raise


def check_name(name: str) -> None:
    """Raises `SubmissionRefused` for a name that sbatch, squeue or sacct would not accept."""
    if not _NAME.fullmatch(name):
        raise SubmissionRefused(f"sbatch: {name!r} is no name for a job")
