"""User, account and name of a job, as its environment says, until its scheduler or accounting has told them."""

from dataclasses import replace
from typing import Any

from apps.archive.wire.entry import CapturedJob
from apps.clusters.schedulers.environment import COUNT

#: Variables by what they tell, the better ones first: the submitter's own words, for searching, not for rights.
_NAMES = {
    "user": (b"LOGNAME", b"USER"),
    "account": (b"SLURM_JOB_ACCOUNT", b"SBATCH_ACCOUNT", b"SLURM_ACCOUNT"),
    "name": (b"SLURM_JOB_NAME", b"SBATCH_JOB_NAME"),
}


def with_claimed_facts(job: CapturedJob) -> tuple[CapturedJob, list[str]]:
    """Return the job with what it lacks of these from its environment, and the names of the facts that come from there.

    A job of which the scheduler or accounting has told the user is as it is.
    """
    if job.user:
        return job, []
    environment = b"\0" + job.environment[COUNT.size :]
    claimed: dict[str, Any] = {
        fact: value
        for fact, names in _NAMES.items()
        if not getattr(job, fact) and (value := next(filter(None, (_value(environment, name) for name in names)), ""))
    }
    return replace(job, **claimed), [*claimed]


def _value(environment: bytes, name: bytes) -> str:
    found = environment.find(b"\0" + name + b"=")
    begins = found + len(name) + 2
    return environment[begins : environment.find(b"\0", begins)].decode(errors="backslashreplace") if found >= 0 else ""
