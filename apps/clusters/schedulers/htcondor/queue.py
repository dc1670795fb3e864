"""List all jobs in a schedd's queue with `condor_q -json`.

The format is that of condor_q(1) and of `compat_classad.cpp` (`CondorClassAdListWriter`), HTCondor
8.6 to 25: a list of objects, or nothing if no job matches; an expression is a string. The numbers
of `JobStatus` are those of the manual's "Job Status Codes".
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from apps.clusters.schedulers.base import (
    CurrentJobs,
    CurrentState,
    Flagged,
    QueueCounts,
    SchedulerError,
    current_jobs_of,
)
from apps.clusters.schedulers.commands import Commands

_ATTRIBUTES = "ClusterId,ProcId,JobStatus,QDate,AccountingGroup,HoldReasonCode"
_IDLE = 1
_RUNNING = 2
_HELD = 5
_TRANSFERRING = 6
_SUSPENDED = 7
_STATES = {
    _IDLE: CurrentState.QUEUED,
    _RUNNING: CurrentState.RUNNING,
    _HELD: CurrentState.HELD,
    _TRANSFERRING: CurrentState.RUNNING,
    _SUSPENDED: CurrentState.RUNNING,
}
_NEEDED = ("ClusterId", "QDate", "JobStatus")
#: The hold reason code of jobs whose input files are being transferred to the schedd.
_SPOOLING = 16


def current_jobs(
    commands: Commands, *, schedd: str = "", pool: str = ""
) -> Iterator[CurrentJobs | Flagged]:
    """Yield the unfinished jobs, by cluster of jobs, with one command.

    Raises `SchedulerError`.
    """
    where = [*(("-pool", pool) if pool else ()), *(("-name", schedd) if schedd else ())]
    answer = commands.pieces("condor_q", *where, "-allusers", "-json", "-attributes", _ATTRIBUTES)
    counts, flagged = read_queue(answer)
    yield from current_jobs_of(counts)
    yield from flagged


def read_queue(pieces: Iterable[bytes]) -> tuple[QueueCounts, list[Flagged]]:
    """Count the jobs in a response.

    Raises `SchedulerError` if it is incomplete or not a list of objects.
    """
    text = b"".join(pieces).decode(errors="replace")
    try:
        ads = json.loads(text, strict=False) if text.strip() else []
    except (ValueError, RecursionError) as error:
        raise SchedulerError(f"condor_q: the response cannot be parsed: {error}") from error
    if not isinstance(ads, list):
        raise SchedulerError("condor_q: the response is not a list of jobs")

    counts: QueueCounts = Counter()
    flagged = []
    for ad in ads:
        attributes: dict[str, object] = {}
        if isinstance(ad, dict):
            attributes = {str(name).casefold(): value for name, value in ad.items()}

        missing = [name for name in _NEEDED if _number(attributes.get(name.casefold())) <= 0]
        if "procid" not in attributes:
            missing.append("ProcId")
        if missing:
            flagged.append(Flagged(json.dumps(ad), f"{missing[0]} is missing or not a number."))
        elif queued := _read(attributes):
            counts[queued] += 1
    return counts, flagged


def _read(ad: Mapping[str, object]) -> tuple[str, int, CurrentState, str, str] | None:
    """Return cluster, submission time, state, account and hold code; None if the job has ended."""
    cluster, submitted, status = (_number(ad.get(name.casefold())) for name in _NEEDED)
    state = _STATES.get(status)
    if state is None:
        return None
    if state == CurrentState.HELD and _number(ad.get("holdreasoncode")) == _SPOOLING:
        state = CurrentState.QUEUED
    account = ad.get("accountinggroup")
    if state == CurrentState.HELD:
        code = _number(ad.get("holdreasoncode"))
    else:
        code = 0
    return (
        str(cluster),
        submitted,
        state,
        account if isinstance(account, str) else "",
        str(code or ""),
    )


def _number(value: object) -> int:
    """Return an integer that is a valid time, else 0."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**11:
        return value
    return 0
