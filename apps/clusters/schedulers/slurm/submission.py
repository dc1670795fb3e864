"""Submit jobs to Slurm with sbatch; find, hold and cancel them."""

import math
import re
import shlex
import tempfile
from collections.abc import Mapping

from apps.clusters.schedulers.base import (
    BatchJob,
    CommandRefused,
    OwnedJob,
    SchedulerError,
    SubmissionRefused,
)
from apps.clusters.schedulers.commands import CommandFailed, Commands
from apps.core.domain.exports.tar import TarMember, write_tar

LOOK_BACK = "now-30days"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
_MIB = 2**20
#: Errors of slurmctld that mean the job was rejected. After any other error it may have been
#: submitted.
_REFUSED = re.compile(
    r"Batch job submission failed: "
    r"(Invalid|Requested|Job violates|User's group|Access/permission|Memory required|More "
    r"processors|Unspecified)"
)
#: Account names that are safe in a command that runs as that account.
_OWNER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
#: Errors of scontrol for a finished job, and for one that slurmctld has purged.
_ENDED = re.compile(r"already finished|Invalid job id specified")

#: Errors of scancel and scontrol for an account without the right, such as for an admin hold.
_DENIED = re.compile(r"Access/permission denied")


def submit(commands: Commands, job: BatchJob) -> str:
    """Submit a script through the standard input of sbatch, and return the job ID.

    Raises `SubmissionRefused`, or `SchedulerError` if slurmctld may have accepted the job.
    """
    check_name(job.name)
    if any("\0" in text for text in (job.script, *job.environment.values())):
        raise SubmissionRefused("sbatch: a script and its variables cannot contain a NUL")
    try:
        # A file, not a pipe: if this process were killed, sbatch would submit half a script.
        with tempfile.TemporaryFile() as script:
            script.write(job.script.encode())
            script.seek(0)
            output = commands.submit(
                "sbatch", *options_of(job), script=script, variables=job.environment
            )
    except CommandFailed as error:
        raise _refused(error) from error
    return _id_in(output)


def _refused(error: CommandFailed) -> SchedulerError:
    if not _REFUSED.search(error.stderr):
        return error
    return SubmissionRefused(str(error))


def _id_in(output: str) -> str:
    spool_id = output.strip().partition(";")[0]
    if not spool_id.isdigit():
        raise SchedulerError(f"sbatch: answered {output[:200]!r}")
    return spool_id


def options_of(job: BatchJob) -> list[str]:
    at_once = f"%{job.most_at_once}" if job.most_at_once else ""
    options = [
        "--parsable",
        f"--job-name={job.name}",
        f"--array=0-{job.tasks - 1}{at_once}",
        f"--time={_minutes(job.time_limit_seconds)}",
        f"--mem={_mebibytes(job.memory_bytes)}M",
        f"--export={','.join(sorted(job.environment)) or 'NONE'}",
    ]
    deadline = ""
    if job.deadline_seconds:
        deadline = f"now+{_minutes(job.deadline_seconds)}minutes"
    return options + _options_with_values(
        {
            "comment": job.comment,
            "chdir": job.directory,
            "output": job.output,
            "account": job.account,
            "partition": job.partition,
            "qos": job.qos,
            "nodelist": job.host,
            "exclude": ",".join(job.avoided_hosts),
            "deadline": deadline,
        }
    )


def read_owner_command(text: str) -> list[str]:
    """Return the words of an `owner_command`; none if it is empty. Raises `ValueError`."""
    try:
        command = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"option owner_command: {error}") from error
    if command and not (command[0].startswith("/") and "{user}" in command):
        raise ValueError(
            "option owner_command: an absolute path of a program, and {user} as a separate word"
        )
    return command


def submit_as_owner(commands: Commands, command: list[str], job: OwnedJob) -> str:
    """Submit a job as its owner with the site's command, and return its ID. Raises as `submit`.

    Refused while the first job is queued or running, because it may have been requeued. Other tasks
    of its array may be running.
    """
    check_name(job.name)
    if not _OWNER.fullmatch(job.owner) or job.owner == "root":
        raise SubmissionRefused(f"sbatch: jobs are not submitted as {job.owner!r}")
    texts = (job.account, job.partition, job.directory, *job.arguments)
    if any(re.search(r"[\n\r\0]", text) for text in texts):
        raise SubmissionRefused("sbatch: a line break or NUL in an option or argument")
    if job.task is None:
        first_id = job.first_id
    else:
        first_id = f"{job.first_id}_{job.task}"
    if _is_there(commands, first_id):
        raise SubmissionRefused(f"sbatch: {first_id} is queued or runs")

    owner_command = [job.owner if word == "{user}" else word for word in command]
    try:
        with tempfile.TemporaryFile() as content:
            files = {"script.sh": job.script, "environment": job.environment}
            content.writelines(
                write_tar(TarMember(name, data, mode=0o600) for name, data in files.items())
            )
            content.seek(0)
            full_command = [*owner_command, *_owned_options(job), "--", *job.arguments]
            answer = commands.submit_by(full_command, content=content)
    except CommandFailed as error:
        raise _refused(error) from error
    return _id_in(answer)


def _owned_options(job: OwnedJob) -> list[str]:
    options = [f"--job-name={job.name}"]
    if job.task is not None:
        options.append(f"--array={job.task}")
    if job.time_limit_seconds:
        options.append(f"--time={_minutes(job.time_limit_seconds)}")
    if job.memory_bytes:
        options.append(f"--mem={_mebibytes(job.memory_bytes)}M")
    return options + _options_with_values(
        {
            "account": job.account,
            "partition": job.partition,
            "chdir": job.directory,
            "exclude": ",".join(job.avoided_hosts),
        }
    )


def _options_with_values(values: Mapping[str, str]) -> list[str]:
    """Return the options of sbatch, by name, that have a value."""
    return [f"--{name}={value}" for name, value in values.items() if value]


def _minutes(seconds: float) -> int:
    return math.ceil(seconds / 60)


def _mebibytes(size_bytes: int) -> int:
    return math.ceil(size_bytes / _MIB)


def _is_there(commands: Commands, job_id: str) -> bool:
    try:
        return bool(commands.run("squeue", "--noheader", "--format=%i", f"--jobs={job_id}").strip())
    except CommandFailed as error:
        if _ENDED.search(error.stderr):
            return False
        raise


def find_submitted(commands: Commands, name: str) -> str | None:
    """Return the ID of the job with this name. Raises `SchedulerError` if squeue or sacct fails."""
    check_name(name)
    listed = commands.run(
        "squeue", "--all", "--states=all", "--noheader", f"--name={name}", "--format=%F"
    )
    if not listed.strip():
        options = (
            "-nPX",
            "--allusers",
            f"--starttime={LOOK_BACK}",
            f"--name={name}",
            "--format=JobID",
        )
        listed = commands.run("sacct", *options)
    ids = sorted(
        {line.strip().partition("_")[0] for line in listed.splitlines() if line.strip()}, key=int
    )
    return ids[0] if ids else None


def control(commands: Commands, program: str, word: str, *, spool_id: str) -> None:
    """Cancel, hold or release all tasks of a job; does nothing for a finished job.

    Raises `CommandRefused` if the portal's account may not do it, else `SchedulerError`.
    """
    if not spool_id.isdigit():
        raise SchedulerError(f"{program}: {spool_id!r} is not a job ID")
    try:
        commands.run(program, word, spool_id)
    except CommandFailed as error:
        if _DENIED.search(error.stderr):
            raise CommandRefused(str(error)) from error
        if program == "scancel" or not _ENDED.search(error.stderr):
            raise


def check_name(name: str) -> None:
    """Raise `SubmissionRefused` for a name that sbatch, squeue or sacct would not accept."""
    if not _NAME.fullmatch(name):
        raise SubmissionRefused(f"sbatch: {name!r} is not a valid job name")
