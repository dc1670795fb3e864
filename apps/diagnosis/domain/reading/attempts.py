"""Attempts of one job: which part of a log belongs to an attempt, and what became of the job.

Attempts of a job write to the same file. The scheduler truncates it when an attempt starts, or
appends to it.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from django.conf import settings
from django.db import transaction

from apps.clusters.domain import log_url_of
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import JobState
from apps.core.domain.bulk import update_objects
from apps.diagnosis.domain.causes.totals import mark_dirty
from apps.diagnosis.domain.reading.job_facts import log_paths, submission_of
from apps.diagnosis.domain.reading.log_access import log_access
from apps.diagnosis.engine.evidence.secrets import starred, starred_part
from apps.diagnosis.engine.logs.remote import fetched, is_remote
from apps.diagnosis.engine.logs.tail import (
    WHOLE,
    WHOLE_BYTES,
    LogOverwritten,
    LogPart,
    open_log,
    read_back,
)
from apps.diagnosis.enums import ADVICE_OF, JobAdvice, Stream, VerdictKind
from apps.diagnosis.models import LogExcerpt, LogHarvest, Verdict
from apps.jobs.domain.records.conversion import hour_of
from apps.jobs.models import Job

#: End states after which the scheduler may start the job again.
RESTARTED = frozenset(
    {JobState.NODE_FAIL, JobState.BOOT_FAIL, JobState.PREEMPTED, JobState.REQUEUED}
)
#: Clocks of file servers and schedulers differ, and a job's last output may reach the file late.
SKEW = timedelta(seconds=10)
SETTLED = timedelta(seconds=60)
#: The line with which Slurm ends the log of an attempt that it will restart. Its time is local to
#: the node.
_MARKER = re.compile(
    rb"^slurmstepd[^\n]{0,40}\*\*\* JOB [^\n]{0,200}CANCELLED AT (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d) "
    rb"DUE TO (?:NODE FAILURE|JOB REQUEUE|PREEMPTION)[^\n]*\n?",
    re.MULTILINE,
)
#: UTC offsets are multiples of a quarter of an hour, so a marker's time is compared with the end of
#: an attempt modulo a quarter of an hour.
_QUARTER_SECONDS = 900
_MARKER_SECONDS = 120


class _JobKey(NamedTuple):
    """What all attempts of a job have in common. Schedulers reuse job IDs."""

    cluster_pk: int
    job_id: str
    submitted_at: datetime


@contextmanager
def open_own_log(
    job: Job, stream: Stream, path: str, attempts: Sequence[Job]
) -> Iterator[tuple[int, LogPart]]:
    """Open a log of a job; yield its descriptor and the part written by this attempt.

    `attempts` are all attempts of the job. Raises `LogError`: `LogOverwritten` if another attempt
    has written to the file and the lines cannot be told apart.
    """
    if is_remote(path):
        with fetched(path, settings.LOG_SERVERS) as (descriptor, part):
            is_own = "{attempt}" in log_url_of(job.cluster)
            if is_own:
                own = WHOLE
            else:
                own = own_part(job, stream, path, descriptor, attempts)
            yield descriptor, replace(own, start=max(own.start, part.start))
        return
    with open_log(Path(path), log_access(job)) as descriptor:
        yield descriptor, own_part(job, stream, path, descriptor, attempts)


def own_part(
    job: Job, stream: Stream, path: str, descriptor: int, attempts: Sequence[Job]
) -> LogPart:
    """Return the part of a log that one attempt wrote.

    It follows from times, from sizes stored earlier, and from the scheduler's markers.
    """
    earlier = []
    later = []
    next_starts = []
    for other in attempts:
        if other.attempt == job.attempt or not other.started_at or not job.started_at:
            continue
        other_paths = [path_of_stream for _, path_of_stream in log_paths(other)]
        if other_paths and path not in other_paths:
            continue
        if other.attempt < job.attempt:
            earlier.append(other)
        else:
            later.append(other)
            next_starts.append(other.started_at - SKEW)
    if not earlier and not later and job.state not in RESTARTED:
        return LogPart()
    markers = _markers(descriptor)
    if earlier:
        start = _start(job, earlier[-1], stream, path, descriptor, markers)
    else:
        start = 0
    next_start = min(next_starts, default=job.ended_at + SETTLED)
    written_at = datetime.fromtimestamp(os.fstat(descriptor).st_mtime, UTC)
    if written_at < next_start or not (later or job.state in RESTARTED):
        return LogPart(start)
    end = next((end for end in _ends(job, markers) if end > start), None)
    if end is None:
        who = f"attempt {later[0].attempt}" if later else "a later attempt"
        raise LogOverwritten(
            f"{path}: {who} has written to this file, and nothing marks the lines of this attempt"
        )
    return LogPart(start, end)


def _markers(descriptor: int) -> list[tuple[datetime, int]]:
    """Return time and end of each marker in file order, of a very large log in its last 64 MB."""
    block = read_back(descriptor, budget_bytes=WHOLE_BYTES)
    markers = []
    for marker in _MARKER.finditer(block.data):
        markers.append((_time(marker[1].decode()), block.offset + marker.end()))
    return markers


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:  # the job wrote a line that looks like a marker
        return datetime.min.replace(tzinfo=UTC)


def _ends(job: Job, markers: Sequence[tuple[datetime, int]]) -> list[int]:
    """Return the ends of the markers whose time matches the end of an attempt."""
    apart = [((at - job.ended_at).total_seconds() % _QUARTER_SECONDS, end) for at, end in markers]
    ends = []
    for seconds, end in apart:
        if min(seconds, _QUARTER_SECONDS - seconds) <= _MARKER_SECONDS:
            ends.append(end)
    return ends


def _start(
    job: Job,
    before: Job,
    stream: Stream,
    path: str,
    descriptor: int,
    markers: Sequence[tuple[datetime, int]],
) -> int:
    """Return where an attempt starts to write: after the previous attempt, or at 0 if truncated."""
    if ends := _ends(before, markers):
        return ends[-1]
    left = LogExcerpt.objects.filter(harvest__job=before, stream=stream, path=path).first()
    if left is not None:
        data = left.data
        kept = starred_part(
            descriptor, os.pread(descriptor, len(data), left.first_offset), left.first_offset
        )
        # An excerpt stored by an earlier version may lack stars.
        if starred(kept) == starred(data) and left.size_bytes < os.fstat(descriptor).st_size:
            return left.size_bytes
        return 0
    script, environment = submission_of(job)
    submission_text = (
        job.submit_line.encode()
        + script
        + f"\n--open-mode={environment.get('SBATCH_OPEN_MODE', '')}".encode()
    )
    if re.search(rb"--open-mode[= ]a", submission_text):
        raise LogOverwritten(
            f"{path}: it is appended to, and nothing marks where attempt {before.attempt} "
            "ends and this one starts"
        )
    return 0


def attempts_of(job: Job) -> list[Job]:
    """Return all attempts of a job, in order.

    They have the same ID and the same time of submission, since schedulers reuse IDs.
    """
    return attempts_by_job([job])[job.pk]


def attempts_by_job(jobs: Sequence[Job]) -> dict[int, list[Job]]:
    """Return all attempts of each of these jobs, in order, by primary key, in one query."""
    by_key = _attempts_by_key({_job_key(job) for job in jobs})
    return {job.pk: by_key[_job_key(job)] for job in jobs}


@transaction.atomic
def follow_attempts(*, cluster: Cluster, job_pks: Iterable[int]) -> int:
    """Store the end of later attempts on the verdicts; return how many changed.

    `job_pks` are primary keys of collected or corrected attempts on this cluster.
    """
    again = Job.objects.filter(cluster=cluster, pk__in=job_pks, attempt__gt=1)
    keys = {_JobKey(*row) for row in again.values_list("cluster_id", "job_id", "submitted_at")}
    if not keys:
        return 0
    attempts: dict[int, list[Job]] = {}
    for attempts_of_job in _attempts_by_key(keys).values():
        for job in attempts_of_job:
            attempts[job.pk] = attempts_of_job
    # A harvest locks its row while it stores the verdict. So either it sees these attempts, or
    # its verdict is seen here.
    list(LogHarvest.objects.select_for_update().filter(job__in=attempts).order_by("pk"))
    verdicts = (
        Verdict.objects.select_for_update(of=("self",))
        .select_related("job")
        .filter(job__in=attempts)
    )
    changed = []
    for verdict in verdicts.order_by("pk"):
        if note_later_attempt(verdict, attempts[verdict.job_id]):
            changed.append(verdict)
    update_objects(changed, ["advice", "later_attempt", "later_state"])
    mark_dirty({hour_of(verdict.ended_at) for verdict in changed})
    return len(changed)


def _job_key(job: Job) -> _JobKey:
    return _JobKey(job.cluster_id, job.job_id, job.submitted_at)


def _attempts_by_key(keys: Collection[_JobKey]) -> dict[_JobKey, list[Job]]:
    """Return all attempts of these jobs, in order, in one query."""
    jobs: dict[_JobKey, list[Job]] = {key: [] for key in keys}
    cluster_pks = {key.cluster_pk for key in keys}
    job_ids = {key.job_id for key in keys}
    for job in (
        Job.objects.filter(cluster__in=cluster_pks, job_id__in=job_ids)
        .select_related("cluster")
        .order_by("attempt")
    ):
        if _job_key(job) in jobs:
            jobs[_job_key(job)].append(job)
    return jobs


@transaction.atomic
def note_retries(*, retries: Mapping[int, Job]) -> int:
    """Store the end of the portal's retries on the verdicts; return how many changed.

    `retries` maps the primary key of each retried job to its finished retry, which has a job ID of
    its own.
    """
    of_jobs = (
        Verdict.objects.select_for_update(of=("self",))
        .select_related("job")
        .filter(job__in=retries)
    )
    verdicts = list(of_jobs.order_by("pk"))
    changed = []
    attempts = _attempts_by_key({_job_key(verdict.job) for verdict in verdicts})
    for verdict in verdicts:
        job = verdict.job
        retry = retries[verdict.job_id]
        verdict.retried_as = retry.job_id
        is_elsewhere = retry.cluster_id != job.cluster_id
        verdict.retried_on_id = retry.cluster_id if is_elsewhere else None
        verdict.retry_state = retry.state
        if note_later_attempt(verdict, attempts[_job_key(job)]):
            changed.append(verdict)
    fields = ["advice", "later_attempt", "later_state", "retried_as", "retried_on", "retry_state"]
    update_objects(changed, fields)
    mark_dirty({hour_of(verdict.ended_at) for verdict in changed})
    return len(changed)


def note_later_attempt(verdict: Verdict, attempts: Sequence[Job]) -> bool:
    """Set advice, later attempt and its state on a verdict, unsaved; return whether they changed.

    Of several later attempts, a completed one counts, else the retry by the portal, else the last.
    """
    later = [job for job in attempts if job.attempt > verdict.job.attempt]
    best = max(later, key=lambda job: (job.state == JobState.COMPLETED, job.attempt), default=None)
    before = verdict.advice, verdict.later_attempt, verdict.later_state
    verdict.later_attempt, verdict.later_state = (best.attempt, best.state) if best else (None, "")
    if verdict.retry_state and verdict.later_state != JobState.COMPLETED:
        verdict.later_attempt = None
        verdict.later_state = verdict.retry_state
    if verdict.later_state:
        verdict.advice = JobAdvice.NONE
    elif verdict.advice == JobAdvice.NONE:
        verdict.advice = ADVICE_OF[VerdictKind(verdict.verdict)]
    return before != (verdict.advice, verdict.later_attempt, verdict.later_state)
