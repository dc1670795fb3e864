"""Read user, account and name of a job from its environment.

These are used until the scheduler or accounting reports them.
"""

from dataclasses import replace
from typing import Any

from apps.clusters.schedulers.environment import COUNT
from capture.wire.entry import CapturedJob

#: Variables for each fact, the better ones first. The submitter controls them: they serve for
#: searches, not for permissions.
_NAMES = {
    "user": (b"LOGNAME", b"USER"),
    "account": (b"SLURM_JOB_ACCOUNT", b"SBATCH_ACCOUNT", b"SLURM_ACCOUNT"),
    "name": (b"SLURM_JOB_NAME", b"SBATCH_JOB_NAME"),
}


def with_claimed_facts(job: CapturedJob) -> tuple[CapturedJob, list[str]]:
    """Fill in missing facts of a job from its environment; return the job and the facts' names.

    A job whose user is known from the scheduler or accounting stays as it is.
    """
    if job.user:
        return job, []
    environment = b"\0" + job.environment[COUNT.size :]
    claimed: dict[str, Any] = {}
    for fact, names in _NAMES.items():
        if getattr(job, fact):
            continue
        value = next(filter(None, (_value(environment, name) for name in names)), "")
        if value:
            claimed[fact] = value
    return replace(job, **claimed), [*claimed]


def _value(environment: bytes, name: bytes) -> str:
    position = environment.find(b"\0" + name + b"=")
    if position < 0:
        return ""
    start = position + len(name) + 2
    end = environment.find(b"\0", start)
    return environment[start:end].decode(errors="backslashreplace")
