"""Retries of jobs that the portal did not submit, as a tar for their owners.

Only the owner can submit as the owner, so the portal hands out scripts and environments from the
archive. Jobs that are running, or that their scheduler may restart, are not in the tar. Each
submit.sh asks Slurm first, so that it never submits a job twice.
"""

import shlex
from collections.abc import Iterable
from datetime import datetime

from apps.accounts.models import User
from apps.archive.domain.bundle import safe_name
from apps.archive.domain.store.contents import DamagedContent, archived_jobs_for, read_blob
from apps.archive.models import ArchivedJob
from apps.archive.permissions import sees_environment
from apps.clusters.schedulers.base import JobState
from apps.core.errors import InvalidTransition
from apps.diagnosis.domain.reading.attempts import RESTARTED
from apps.diagnosis.models import Verdict
from apps.jobs.models import Job
from apps.submission.domain.debugging.bundle import (
    NO_SLURM,
    captured_variables,
    sbatch_command,
    tar_of,
)
from apps.submission.domain.retries.owned import RESTART

MOST_JOBS = 200
#: A bundle is made in memory.
MOST_BYTES = 50_000_000

_README = """Retries of {count} failed jobs that opsportal did not submit.

    ./submit-all.sh

submits each job from its directory, with its archived script.sh and environment; each variable ends
with a NUL. Run it as the owner of the jobs, on a host of their cluster. A job is submitted only
once: its directory then has the file "submitted" with the new ID. No job is submitted while the
first one, or a retry of it, is queued or running.
{left}"""
_SUBMIT_ALL = """#!/bin/sh
cd -- "$(dirname -- "$0")" || exit 1
failed=0
for job in */submit.sh; do "$job" "$@" || failed=1; done
exit $failed
"""
_SUBMIT = """#!/bin/sh
set -eu
cd -- "$(dirname -- "$0")"
if [ -e submitted ]; then echo "{job}: submitted before as $(cat submitted)" >&2; exit 0; fi
unfinished=$(squeue --noheader --format=%i --name={name} --user="$(id -un)")
first=$(squeue --noheader --format=%i --jobs={job} 2>/dev/null || true)
if [ -n "$unfinished$first" ]; then
  echo "{job}: $unfinished $first is queued or runs" >&2
  exit 0
fi
mkdir lock 2>/dev/null || {{ echo "{job}: being submitted" >&2; exit 0; }}
if id=$({command}); then echo "$id" > submitted; echo "{job}: $id"; else rmdir lock; exit 1; fi
"""


def retry_bundle(*, verdicts: Iterable[Verdict], by: User, at: datetime) -> bytes:
    """Return a tar with a directory for each job that can be retried, and why others are left out.

    At most `MOST_JOBS` are in it. Raises `InvalidTransition` if there is none.
    """
    jobs = [verdict.job for verdict in verdicts]
    captured = archived_jobs_for(jobs)
    files: dict[str, bytes] = {}
    left: list[str] = []
    bundle_bytes = 0
    for job in jobs:
        archived = captured.get(job.pk)
        reason = _obstacle(job, archived, by, at)
        if not reason and archived:
            bytes_with_job = bundle_bytes + archived.script_bytes + archived.environment_bytes
            if len(files) == 3 * MOST_JOBS or bytes_with_job > MOST_BYTES:
                reason = f"a bundle has at most {MOST_JOBS} jobs and {MOST_BYTES // 1_000_000} MB"
        if not reason and archived:
            try:
                files |= _files_of(job, archived)
                bundle_bytes = bytes_with_job
            except DamagedContent as error:
                reason = f"the archived content {error}"
        if reason:
            left.append(f"    {job.job_id} on {job.cluster.name}: {reason}")
    if not files:
        why = "; ".join(line.strip() for line in left[:3])
        raise InvalidTransition(f"No job can be bundled. {why}")
    lines = "\n".join(["\nLeft out:", *left, ""]) if left else ""
    if any(job.cluster.scheduler != "slurm" for job in jobs):
        lines += NO_SLURM.format(scheduler="another scheduler")
    readme = _README.format(count=len(files) // 3, left=lines)
    files |= {"submit-all.sh": _SUBMIT_ALL.encode(), "README": readme.encode()}
    return tar_of("retry", files.items(), at)


def _obstacle(job: Job, archived: ArchivedJob | None, by: User, at: datetime) -> str:
    """Return why a job cannot be retried from the archive; empty if it can."""
    if JobState(job.state) in RESTARTED and at - job.ended_at < RESTART:
        return "its scheduler may start it again"
    if archived is None:
        return "its script was not captured"
    if not sees_environment(by, archived):
        return "you may not see its environment"
    if archived.open_conflict:
        return "captures of it differ"
    if archived.caveat:
        return f"its script may differ: {archived.caveat}"
    return ""


def _files_of(job: Job, archived: ArchivedJob) -> dict[str, bytes]:
    script = read_blob(archived.script)
    environment = read_blob(archived.environment)
    variables, masked = captured_variables(environment)
    directory = f"{safe_name(job.cluster.name)}-{safe_name(job.job_id)}"
    text = _submit_script(job, archived)
    if masked:
        names = ", ".join(safe_name(name) for name in masked)
        check = (
            f'echo "{safe_name(job.job_id)}: secrets are not archived, put them into environment: '
            f'{names}" >&2\n'
        )
        text = text.replace("set -eu\n", f"set -eu\n{check}", 1)
    return {
        f"{directory}/script.sh": script,
        f"{directory}/environment": b"".join(
            name + b"=" + value + b"\0" for name, value in variables
        ),
        f"{directory}/submit.sh": text.encode(),
    }


def _submit_script(job: Job, archived: ArchivedJob) -> str:
    name = f"retry.{safe_name(job.cluster.name)}.{safe_name(job.job_id)}"
    options = ["--parsable", f"--job-name={name}"]
    if job.work_dir:
        options.append(f"--chdir={job.work_dir}")
    command = sbatch_command(job, archived, options)
    return _SUBMIT.format(job=shlex.quote(safe_name(job.job_id)), name=name, command=command)
