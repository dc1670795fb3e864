"""Parse records from HTCondor's event log: `EVENT_LOG`, or the log of one job.

An event is `NNN (cluster.proc.subproc) time text` and ends with `...`. The log has neither owner
nor account unless `EVENT_LOG_JOB_AD_INFORMATION_ATTRS` adds them. A time without a year is taken
from the latest year in which it is not after `newest`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo

from apps.clusters.schedulers.base import Flagged, JobRecord, JobState
from apps.clusters.schedulers.plausibility import checked

_HEAD = re.compile(
    r"(?P<kind>\d{3}) \((?P<cluster>-?\d+)\.(?P<proc>-?\d+)\.-?\d+\)"
    r" (?:(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)|(?P<m>\d\d)/(?P<d>\d\d))[ T]"
    r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:\.\d+)?(?P<utc>Z)?\s?(?P<text>.*)"
)
_SUBMITTED = "000"
_STARTED = "001"
_TERMINATED = "005"
_SIZE = "006"
_ABORTED = "009"
_HELD = "012"
_RETURNED = re.compile(r"Normal termination \(return value (-?\d+)\)")
_SIGNALLED = re.compile(r"Abnormal termination \(signal (\d+)\)")
_USAGE = re.compile(
    r"Usr (\d+) (\d+):(\d+):(\d+), Sys (\d+) (\d+):(\d+):(\d+)\s+-\s+Total Remote Usage"
)
_BYTES = re.compile(r"^[ \t]{0,8}(\d{1,18})  -  Total Bytes (Sent|Received) By Job", re.MULTILINE)
_CPUS = re.compile(
    r"^[ \t]{0,8}Cpus {0,40}: {0,40}[\d.]{0,12} {1,40}\d{1,9} {1,40}(\d{1,9})\b", re.MULTILINE
)
_MEMORY = re.compile(r"^[ \t]{0,8}(\d{1,18})  -  MemoryUsage of job \(MB\)", re.MULTILINE)
_HOSTS = [
    re.compile(start + r"([\w.-]+)") for start in (r"SlotName: (?:\S*@)?", "alias=", "host: <?")
]
_FACT = re.compile(r'^[ \t]{0,8}(Owner|AccountingGroup|JobBatchName|Iwd) = "(.*)"$', re.MULTILINE)
_AHEAD = timedelta(days=1)
#: Seconds in a day, an hour, a minute and a second.
_SECONDS_OF_UNITS = (86_400, 3_600, 60, 1)


@dataclass
class _Job:
    """The state of a job after the events parsed so far."""

    submitted_at: datetime
    started_at: datetime | None = None
    starts: int = 0
    host: str = ""
    held: str = ""
    max_memory: int | None = None
    facts: dict[str, str] = field(default_factory=dict)


def records_of_events(text: str, zone: tzinfo, newest: datetime) -> Iterator[JobRecord | Flagged]:
    """Yield the last attempt of each job that was both submitted and ended in the log.

    Incomplete events are ignored.
    """
    jobs: dict[tuple[int, int], _Job] = {}
    for event in re.split(r"^\.\.\.\s*$", text, flags=re.MULTILINE)[:-1]:
        head = _HEAD.match(event.lstrip("\n"))
        if head is None:
            yield Flagged(event, "This is not an event of HTCondor.")
            continue
        key = int(head["cluster"]), int(head["proc"])
        try:
            if min(key) < 0:
                raise ValueError("the job has no ID")
            at = _time(head, zone, newest)
            record = _apply(jobs, key, head["kind"], event, at)
        except (ValueError, OverflowError) as error:
            yield Flagged(event, f"The event cannot be read: {error}.")
            continue
        if record:
            yield record


def _apply(
    jobs: dict[tuple[int, int], _Job],
    key: tuple[int, int],
    kind: str,
    event: str,
    at: datetime,
) -> JobRecord | Flagged | None:
    """Apply an event to the jobs parsed so far; return the record of a job that it ends."""
    if kind == _SUBMITTED:
        jobs[key] = _Job(at)
    job = jobs.get(key)
    if job is None:
        return None
    job.facts |= dict(_FACT.findall(event))
    if kind == _STARTED:
        job.started_at = at
        job.starts += 1
        job.host = _host_in(event)
    elif kind == _SIZE and (memory := _MEMORY.search(event)):
        job.max_memory = max(job.max_memory or 0, int(memory[1]) * 1024**2)
    elif kind == _HELD:
        job.held = " ".join(event.split("\n", 2)[1:2]).strip()
    elif kind in {_TERMINATED, _ABORTED}:
        del jobs[key]
        return checked(_record(key, job, kind, event, at), lambda: event)
    return None


def _host_in(event: str) -> str:
    """Return the host on which a job started, by the first matching pattern; "" if none does."""
    for pattern in _HOSTS:
        match = pattern.search(event)
        if match:
            return match[1]
    return ""


def _record(key: tuple[int, int], job: _Job, kind: str, event: str, at: datetime) -> JobRecord:
    returned = _RETURNED.search(event)
    signalled = _SIGNALLED.search(event)
    if kind == _TERMINATED and not returned and not signalled:
        raise ValueError("it has neither a return value nor a signal")

    code = int(returned[1]) if returned else 0
    signal = int(signalled[1]) if signalled else 0
    if kind == _ABORTED:
        state = JobState.CANCELLED
    elif code or signal:
        state = JobState.FAILED
    else:
        state = JobState.COMPLETED

    wall_seconds = 0
    if job.started_at:
        wall_seconds = int((at - job.started_at).total_seconds())
    cpus = _CPUS.search(event)
    transferred = {direction: int(count) for count, direction in _BYTES.findall(event)}
    return JobRecord(
        job_id=f"{key[0]}.{key[1]}",
        raw_id=key[0],
        spool_id=str(key[0]),
        attempt=max(job.starts, 1),
        state=state,
        exit_code=code,
        signal=signal,
        submitted_at=job.submitted_at,
        started_at=job.started_at,
        ended_at=at,
        host=job.host,
        cpus=int(cpus[1]) if cpus else 0,
        cpu_seconds=_cpu_seconds(event),
        wall_seconds=wall_seconds,
        max_memory_bytes=job.max_memory,
        account=job.facts.get("AccountingGroup", ""),
        user=job.facts.get("Owner", ""),
        name=job.facts.get("JobBatchName", ""),
        work_dir=job.facts.get("Iwd", ""),
        reason=job.held,
        bytes_out=transferred.get("Sent"),
        bytes_in=transferred.get("Received"),
    )


def _cpu_seconds(event: str) -> float:
    """Return the user and system time of a job: each is days, hours, minutes and seconds."""
    usage = _USAGE.search(event)
    if usage is None:
        return 0.0
    seconds = 0
    for number, unit in zip(usage.groups(), _SECONDS_OF_UNITS * 2, strict=True):
        seconds += int(number) * unit
    return float(seconds)


def _time(head: re.Match[str], zone: tzinfo, newest: datetime) -> datetime:
    """Return the time of an event, in UTC; without a year, the latest that is not after `newest`.

    Clocks may differ by `_AHEAD`. Raises `ValueError` and `OverflowError`.
    """
    month = int(head["month"] or head["m"])
    day = int(head["day"] or head["d"])
    clock = int(head["hour"]), int(head["minute"]), int(head["second"])
    zone = UTC if head["utc"] else zone
    if head["year"]:
        return datetime(int(head["year"]), month, day, *clock, tzinfo=zone).astimezone(UTC)

    year = newest.astimezone(zone).year
    at = datetime(year, month, day, *clock, tzinfo=zone)
    if at > newest + _AHEAD:
        at = at.replace(year=year - 1)
    return at.astimezone(UTC)
