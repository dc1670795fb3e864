"""Convert events in Torque's accounting to job records."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from apps.clusters.schedulers.base import JobRecord, JobState

_FACT = re.compile(r"(?:^| )([A-Za-z_][\w.]*)=")
_BEFORE_NAME = ("user", "group", "account")
_JOB_ID = re.compile(r"(?P<number>[0-9]+)(?:\[(?P<task>[0-9]+)\])?(?P<server>(?:\..*)?)")
_SIZE = re.compile(r"([0-9]+)([kmgtp]?)[bw]?")
_KILLED_BY_LIMIT = (9, 15)
_LIMITS = {
    -10: (JobState.OUT_OF_MEMORY, "exceeded its memory"),
    -11: (JobState.TIMEOUT, "exceeded its walltime"),
    -12: (JobState.TIMEOUT, "exceeded its cpu time"),
}
_HOST_LENGTH = 255


@dataclass(frozen=True, slots=True)
class TorqueEvent:
    """A line of accounting: Q(ueued), S(tarted), E(nded), D(eleted), A(borted), R(erun)."""

    at: datetime
    kind: str
    job_id: str
    facts: dict[str, str]


@dataclass(slots=True)
class _Submission:
    """The state of a job after the events read so far."""

    queued_at: datetime
    attempt: int = 1
    start: TorqueEvent | None = None
    deletion: TorqueEvent | None = None
    ended: bool = False
    facts: dict[str, str] = field(default_factory=dict)


def read_facts(text: str) -> dict[str, str]:
    """Parse `name=value name=value …`.

    Some values are free text. Torque writes user and account before the job name, all other facts
    after it, and its own times last, so that user text cannot hide them.
    """
    facts: dict[str, str] = {}
    matches = list(_FACT.finditer(text))
    ends = [match.start() for match in matches[1:]]
    ends.append(len(text))
    for match, value_end in zip(matches, ends, strict=False):
        name = match[1]
        value = text[match.end() : value_end]
        if name not in _BEFORE_NAME:
            facts[name] = value
        elif "jobname" not in facts:
            facts.setdefault(name, value)
    return facts


def spool_id_of(job_id: str) -> str:
    """Return the spool ID of a job: `12[].server` for the task `12[3].server`."""
    return re.sub(r"\[[0-9]+\]", "[]", job_id, count=1)


def attempts_of(events: Iterable[TorqueEvent], *, settled_before: datetime) -> Iterator[JobRecord]:
    """Yield the ended attempts of a job from its events in order. Raises `ValueError`.

    A deletion ends a queued job. A running job that is deleted ends with its end event, or at the
    latest when `settled_before` passes.
    """
    job: _Submission | None = None
    for event in events:
        if job is None or (job.ended and event.kind == "Q"):
            if job:
                yield from _deleted(job, settled_before)
            job = _Submission(queued_at=event.at)
        if not job.ended:
            yield from _apply(job, event)
    if job:
        yield from _deleted(job, settled_before)


def _apply(job: _Submission, event: TorqueEvent) -> Iterator[JobRecord]:
    job.facts = {**job.facts, **event.facts}
    match event.kind:
        case "S":
            job.start = event
        case "R":
            if job.start:
                yield _record(job, event, JobState.REQUEUED)
            job.attempt += 1
            job.start = None
            job.deletion = None
        case "D":
            job.deletion = job.deletion or event
        case "A":
            job.ended = True
            yield replace(_record(job, event, JobState.CANCELLED), reason="aborted by the server")
        case "E":
            job.ended = True
            yield _ended(job, event)


def _deleted(job: _Submission, settled_before: datetime) -> Iterator[JobRecord]:
    deletion = job.deletion
    if deletion and not job.ended and (job.start is None or deletion.at < settled_before):
        yield _record(job, deletion, JobState.CANCELLED)


def _ended(job: _Submission, event: TorqueEvent) -> JobRecord:
    """Return the record of a job that ran.

    A status of 256 or more is a signal; a negative one is one of Torque's own reasons.
    """
    status = int(event.facts.get("Exit_status", "0"))
    record = _record(job, event, JobState.COMPLETED)
    signal = status - 256 if status >= 256 else 0
    limit = record.time_limit_seconds
    if status in _LIMITS:
        state, reason = _LIMITS[status]
        return replace(record, state=state, reason=reason)
    if signal in _KILLED_BY_LIMIT and limit is not None and record.wall_seconds >= limit:
        return replace(record, state=JobState.TIMEOUT, reason=_LIMITS[-11][1])
    if job.deletion:
        return replace(record, state=JobState.CANCELLED)
    if status < 0:
        return replace(
            record, state=JobState.FAILED, reason=f"Torque could not run it: Exit_status={status}"
        )
    state = JobState.FAILED if status else JobState.COMPLETED
    return replace(record, state=state, exit_code=0 if signal else status, signal=signal)


def _record(job: _Submission, event: TorqueEvent, state: JobState) -> JobRecord:
    facts = job.facts
    match = _JOB_ID.fullmatch(event.job_id)
    if not match:
        raise ValueError(f"no job ID: {event.job_id!r}")

    started_at, ended_at = _times(job, event)
    wall_seconds = _duration(event.facts.get("resources_used.walltime", ""))
    if wall_seconds is None:
        wall_seconds = int((ended_at - started_at).total_seconds()) if started_at else 0

    host_names: list[str] = []
    cpus = 0
    if started_at:
        # As `host1/0-3+host2/1`.
        for part in filter(None, facts.get("exec_host", "").split("+")):
            host_name, _, slots = part.partition("/")
            host_names.append(host_name)
            cpus += _slots(slots)
    cancelled_by = ""
    if job.deletion:
        cancelled_by = job.deletion.facts.get("requestor", "").partition("@")[0]

    return JobRecord(
        job_id=event.job_id,
        raw_id=int(match["number"]),
        spool_id=spool_id_of(event.job_id),
        attempt=job.attempt,
        state=state,
        exit_code=0,
        signal=0,
        submitted_at=read_time(facts.get("ctime", "")) or job.queued_at,
        started_at=started_at,
        ended_at=ended_at,
        host=",".join(dict.fromkeys(host_names))[:_HOST_LENGTH],
        cpus=cpus,
        cpu_seconds=_duration(event.facts.get("resources_used.cput", "")) or 0,
        wall_seconds=wall_seconds,
        max_memory_bytes=_size(event.facts.get("resources_used.mem", "")),
        requested_memory_bytes=_size(facts.get("Resource_List.mem", "")),
        time_limit_seconds=_duration(facts.get("Resource_List.walltime", "")),
        partition=facts.get("queue", ""),
        account=facts.get("account", ""),
        user=facts.get("user", "") or facts.get("owner", "").partition("@")[0],
        name=facts.get("jobname", ""),
        cancelled_by=cancelled_by,
    )


def _times(job: _Submission, event: TorqueEvent) -> tuple[datetime | None, datetime]:
    """Return start and end of an attempt.

    The end event has both times; other events have only their own time.
    """
    started_at = None
    if job.start:
        started_at = read_time(job.start.facts.get("start", "")) or job.start.at
    if event.kind != "E":
        return started_at, event.at
    return (
        read_time(event.facts.get("start", "")) or started_at,
        read_time(event.facts.get("end", "")) or event.at,
    )


def unreadable_figures(events: Iterable[TorqueEvent]) -> list[str]:
    """Return a sentence for each figure that is not a time, duration or size."""
    unreadable = set()
    for event in events:
        for name, read in _FIGURES.items():
            value = event.facts.get(name)
            if value and read(value) is None:
                unreadable.add(name)
    return [f"{name} cannot be read." for name in _FIGURES if name in unreadable]


def read_time(text: str) -> datetime | None:
    """Parse seconds since 1970."""
    if not re.fullmatch(r"[1-9][0-9]{0,10}", text):
        return None
    return datetime.fromtimestamp(int(text), UTC)


def _duration(text: str) -> int | None:
    """Parse `[[[days:]hours:]minutes:]seconds` as seconds; None for anything else."""
    if not re.fullmatch(r"[0-9]{1,9}(:[0-9]{1,9}){0,3}", text):
        return None
    seconds = 0
    for weight, part in zip((1, 60, 3600, 86400), reversed(text.split(":")), strict=False):
        seconds += weight * int(part)
    return seconds


def _size(text: str) -> int | None:
    """Parse bytes, with or without a unit; None for 8-byte words, which are practically unused."""
    lowered = text.lower()
    match = _SIZE.fullmatch(lowered)
    if not match or lowered.endswith("w"):
        return None
    factor: int = 1024 ** " kmgtp".index(match[2] or " ")
    return int(match[1]) * factor


def _slots(text: str) -> int:
    """Count the processors of `0-3,5`; one if none are listed."""
    count = 0
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and last.isdecimal():
            count += int(last) - int(first) + 1
        else:
            count += 1
    return count


_FIGURES: dict[str, Callable[[str], object]] = {
    "ctime": read_time,
    "start": read_time,
    "end": read_time,
    "resources_used.walltime": _duration,
    "resources_used.cput": _duration,
    "resources_used.mem": _size,
}
