"""A debug re-run as a tar, for jobs that the portal did not submit.

It is made from the archived script and environment.
"""

import math
import re
import shlex
from collections.abc import Iterable
from datetime import datetime
from pathlib import PurePosixPath

from apps.accounts.models import User
from apps.archive.domain.bundle import safe_name
from apps.archive.domain.store.contents import DamagedContent, archived_job_for, read_blob
from apps.archive.models import ArchivedJob
from apps.archive.permissions import sees_environment
from apps.clusters.schedulers.environment import variables_in
from apps.core.domain.exports.tar import TarMember, write_tar
from apps.core.errors import InvalidTransition, NotAllowed
from apps.jobs.enums import DEBUG_STAGE
from apps.jobs.models import Job
from apps.submission.enums import HostChoice
from apps.submission.models import DebugProfile

#: Variables that the scheduler sets for each job; the values of the original job would mislead the
#: re-run.
_OF_JOB = re.compile(rb"SLURM_|SLURMD_|PBS_|_CONDOR_|TMPDIR$|OPSPORTAL_PHASE_TOKEN$")
_MASKED = re.compile(rb"<masked:[0-9a-f]{16}>")
_SHELL = re.compile(rb"#!\s*\S*/(env\s+)?(ba|da|k|z)?sh\b")

_README = """Debug re-run of job {job} on {cluster}, with the profile {profile}.

    ./submit.sh [more options of sbatch]

script.sh is the archived script{traced}. environment is that of the job, with the changes of the \
profile; each variable
ends with a NUL. Run it as {user}, or as somebody who may read the same files.
{masked}
The job writes to the places where the first one wrote. The portal shows it under the stage \
{stage}, which is in no
statistics.
"""
NO_SLURM = (
    "\nsubmit.sh is for Slurm. The job ran under {scheduler}: submit script.sh with its own "
    "command.\n"
)


def may_download(user: User, archived: ArchivedJob) -> bool:
    """Return whether a user may download the bundle of an archived job, and it is certain."""
    return not archived.open_conflict and sees_environment(user, archived)


def debug_bundle(*, job: Job, profile: DebugProfile, by: User, at: datetime) -> bytes:
    """Return a tar with script, environment, README and the command that submits them.

    Raises `InvalidTransition` if the script is not archived, `NotAllowed` without the right to see
    the environment.
    """
    archived = archived_job_for(job)
    if archived is None:
        raise InvalidTransition("The script of this job was not captured.")
    if archived.open_conflict:
        raise InvalidTransition(archived.open_conflict)
    if not sees_environment(by, archived):
        raise NotAllowed(
            "Only liaisons, approvers and admins of the experiment can download environments."
        )
    try:
        script = read_blob(archived.script)
        environment = read_blob(archived.environment)
    except DamagedContent as error:
        raise InvalidTransition(f"The archived content {error}.") from error
    variables, masked = _variables(environment, profile, job)
    traced = profile.trace and bool(_SHELL.match(script))
    readme = _README.format(
        job=job.job_id,
        cluster=job.cluster.name,
        profile=profile.name,
        user=job.user or "the user of the job",
        traced=", with set -x" if traced else "",
        masked=f"\nSecrets are not archived. Set these first: {', '.join(masked)}\n"
        if masked
        else "",
        stage=f"{job.stage}{DEBUG_STAGE}" if job.stage else "–",
    )
    if job.cluster.scheduler != "slurm":
        readme += NO_SLURM.format(scheduler=job.cluster.scheduler)
    files = {
        "script.sh": _traced(script) if traced else script,
        "environment": b"".join(name + b"=" + value + b"\0" for name, value in variables),
        "submit.sh": _submit_script(job, archived, profile).encode(),
        "README": readme.encode(),
    }
    return tar_of(f"debug-{safe_name(job.job_id)}", files.items(), at)


def _variables(
    environment: bytes, profile: DebugProfile, job: Job
) -> tuple[list[tuple[bytes, bytes]], list[str]]:
    """Return the variables of the re-run, and the names of those whose values are masked."""
    captured, masked = captured_variables(environment)
    variables = dict(captured)
    for name, value in profile.variables.items():
        variables[name.encode()] = value.encode()
    if job.stage:
        stage = f"{job.stage[: 64 - len(DEBUG_STAGE)]}{DEBUG_STAGE}"
        variables[b"OPSPORTAL_STAGE"] = stage.encode()
    return list(variables.items()), masked


def captured_variables(environment: bytes) -> tuple[list[tuple[bytes, bytes]], list[str]]:
    """Return the variables of a captured job, and the names of masked ones.

    The variables of its scheduler are left out.
    """
    values = {name: value for name, value in variables_in(environment) if not _OF_JOB.match(name)}
    variables = []
    masked = []
    for name, value in values.items():
        if _MASKED.search(value):
            masked.append(name.decode("utf-8", "replace"))
        else:
            variables.append((name, value))
    return variables, masked


def masked_variables(archived: ArchivedJob) -> list[str]:
    """Return the names of masked variables, without reading the environment.

    They are those that `captured_variables` returns.
    """
    masked = []
    for name in archived.masked_names:
        if not _OF_JOB.match(name.encode(errors="replace")):
            masked.append(name)
    return masked


def _traced(script: bytes) -> bytes:
    """Return a shell script with `set -x` after its head, where schedulers read their options."""
    lines = script.split(b"\n")
    head = next(
        (n for n, line in enumerate(lines) if line.strip() and not line.startswith(b"#")),
        len(lines),
    )
    return b"\n".join([*lines[:head], b"set -x  # debug re-run", *lines[head:]])


def _submit_script(job: Job, archived: ArchivedJob, profile: DebugProfile) -> str:
    options = [f"--job-name=debug.{safe_name(job.job_id)}"]
    where = {HostChoice.SAME: "nodelist", HostChoice.OTHER: "exclude"}.get(HostChoice(profile.host))
    if where and job.host:
        options.append(f"--{where}={job.host}")
    command = sbatch_command(
        job,
        archived,
        options,
        time_factor=profile.time_factor,
        memory_factor=profile.memory_factor,
    )
    return f'#!/bin/sh\nset -eu\ncd -- "$(dirname -- "$0")"\n{command}\n'


def sbatch_command(
    job: Job,
    archived: ArchivedJob,
    options: Iterable[str],
    *,
    time_factor: float = 1,
    memory_factor: float = 1,
) -> str:
    """Return the command that submits script.sh with the environment and the limits of a job.

    The limits may have been options of sbatch, which no script has.
    """
    arguments = [*options, "--export-file=environment"]
    _, _, task = job.job_id.partition("_")
    if task.isdigit():
        arguments.append(f"--array={task}")
    if job.time_limit_seconds:
        arguments.append(f"--time={math.ceil(job.time_limit_seconds * time_factor / 60)}")
    if job.requested_memory_bytes:
        arguments.append(f"--mem={math.ceil(job.requested_memory_bytes * memory_factor / 2**20)}M")
    if job.account:
        arguments.append(f"--account={job.account}")
    if job.partition:
        arguments.append(f"--partition={job.partition}")
    # Accounting has the arguments without quotes.
    of_script = shlex.join(archived.arguments.split())
    return f'sbatch {shlex.join(arguments)} "$@" script.sh {of_script}'.rstrip()


def tar_of(directory: str, files: Iterable[tuple[str, bytes]], at: datetime) -> bytes:
    """Return a tar of files in one directory."""
    modified_at = int(at.timestamp())
    members = (
        TarMember(f"{directory}/{name}", content, _mode_of(name), modified_at)
        for name, content in files
    )
    return b"".join(write_tar(members))


def _mode_of(name: str) -> int:
    """Return the permissions of a file: scripts can be run, only the owner reads an environment.

    A retry bundle has a directory for each job.
    """
    if name.endswith(".sh"):
        return 0o755
    if PurePosixPath(name).name == "environment":
        return 0o600
    return 0o644
