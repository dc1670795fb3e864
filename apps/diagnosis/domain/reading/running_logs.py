"""Read the end of the log of a running job, repeatedly while the log grows.

Accounting does not know the job yet: its owner is known from its captured script, the path of its
log from the scheduler. A worker asks the scheduler and keeps the answer for a while; a page only
reads the file.
"""

import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from django.core.cache import cache

from apps.accounts.models import User
from apps.archive.domain.capture_hosts import trusted_hosts
from apps.archive.domain.store.conflicts import captures_of
from apps.archive.domain.store.contents import CLOCK_TOLERANCE, DamagedContent, read_blob
from apps.archive.models import ArchivedJob
from apps.clusters.domain import adapter_of, log_url_of
from apps.clusters.schedulers.base import JobState, SchedulerError
from apps.clusters.schedulers.environment import variables_in
from apps.core.domain.background import enqueue
from apps.diagnosis.domain.reading.attempts import RESTARTED
from apps.diagnosis.domain.reading.log_access import log_access
from apps.diagnosis.domain.reading.log_windows import LineView, mark_lines
from apps.diagnosis.engine.evidence.secrets import starred_block
from apps.diagnosis.engine.logs.tail import LogError, LogMissing, open_log, read_back
from apps.diagnosis.enums import Stream
from apps.jobs.domain.records.conversion import record_of
from apps.jobs.models import Job

LINES = 200
TAIL_BYTES = 256 * 1024
HEAD_BYTES = 1024
#: How long paths are kept, and how long a question to the scheduler about an archived job is not
#: repeated if it has no answer, or if the scheduler did not know the paths.
KNOWN_SECONDS = 600
ASK_SECONDS = 30
#: Environment variables of a job that name its working directory.
_DIRECTORIES = ("SLURM_SUBMIT_DIR", "PBS_O_WORKDIR", "PWD")


#: The captured script is the only source for the owner of a running job's log.
NOT_TRUSTED = (
    "The log is read when the job ends: its capture host is not trusted, or its captures differ."
)
NOTICES = {
    "replaced": "The log was replaced by another file. These are the lines of the new one.",
    "shrank": "The log shrank. Earlier lines are lost.",
    "overwritten": "The log was overwritten from its start. Earlier lines are lost.",
}


@dataclass(frozen=True, slots=True)
class Seen:
    """The state of a file when last read: inode, size, and checksum of its first bytes."""

    inode: int
    size: int
    head: int

    def __str__(self) -> str:
        return f"{self.inode}-{self.size}-{self.head}"


@dataclass(frozen=True, slots=True)
class RunningLog:
    """The current end of a log.

    `finished` is the job's record once it has ended; the log no longer grows then.
    """

    archived: ArchivedJob
    job_id: str
    stream: Stream
    streams: tuple[Stream, ...] = (Stream.STDOUT,)
    path: str = ""
    lines: tuple[LineView, ...] = ()
    seen: Seen | None = None
    notice: str = ""
    problem: str = ""
    finished: Job | None = None


def running_job(*, user: User, cluster: str, job_id: str) -> ArchivedJob | None:
    """Return the archived job with this ID, or the array of this task (`4711_3`).

    Of several, it is the newest that the user may see.
    """
    job_ids = {job_id, job_id.partition("_")[0]}
    jobs = ArchivedJob.objects.visible_to(user).filter(cluster__name=cluster, job_id__in=job_ids)
    newest = jobs.select_related("cluster", "experiment").order_by("-submitted_at").first()
    if newest is None or not newest.open_conflict:
        return newest
    chosen = next((capture for capture in captures_of(newest) if capture.chosen_at), newest)
    return jobs.select_related("cluster", "experiment").filter(pk=chosen.pk).first() or newest


def running_log(
    archived: ArchivedJob,
    *,
    job_id: str,
    stream: Stream = Stream.STDOUT,
    before: Seen | None = None,
) -> RunningLog:
    """Read the last lines of a log.

    `before` is what the reader saw last; a notice reports whether the log shrank or was replaced.
    """
    log = RunningLog(archived, job_id, stream, finished=_finished(archived, job_id))
    paths = cache.get(_key(archived, job_id))
    if log.finished and (paths is None or "problem" in paths):
        return log
    if archived.open_conflict or archived.sender not in trusted_hosts():
        return replace(log, problem=NOT_TRUSTED)
    if paths is None:
        if cache.add(_request_key(archived.pk), 1, ASK_SECONDS):
            enqueue("diagnosis.find_running_log", archived_id=archived.pk, job_id=job_id)
        return replace(log, problem="Asking the scheduler where this job writes its log.")
    if problem := paths.get("problem", ""):
        return replace(log, problem=problem)
    streams = tuple(candidate for candidate in Stream if paths.get(candidate))
    log = replace(log, streams=streams, path=paths.get(stream, ""))
    if not log.path:
        return replace(log, problem=f"The job has no separate {stream.label.lower()}.")
    return _read(log, before)


def find_running_log(*, archived_id: int, job_id: str, at: datetime) -> None:
    """Ask the scheduler for the log paths of a running job and cache them for a while."""
    archived = (
        ArchivedJob.objects.select_related("cluster", "script", "environment")
        .filter(pk=archived_id)
        .first()
    )
    if archived is None:
        return
    paths = _paths(archived, job_id, at)
    seconds = KNOWN_SECONDS
    if "problem" in paths:
        seconds = ASK_SECONDS
    cache.set(_key(archived, job_id), paths, seconds)
    cache.delete(_request_key(archived_id))


def _paths(archived: ArchivedJob, job_id: str, at: datetime) -> dict[str, str]:
    if log_url_of(archived.cluster):
        return {
            "problem": "Logs of this cluster are on a web server. They are read when the job ends."
        }
    try:
        script = read_blob(archived.script)
        environment = _variables(read_blob(archived.environment))
    except DamagedContent as error:
        return {"problem": f"The archived content {error}."}
    record = record_of(_as_job(archived, job_id, at, environment))
    try:
        log_paths = adapter_of(archived.cluster).log_paths(
            record, script=script, environment=environment
        )
    except SchedulerError as error:
        return {"problem": f"The scheduler did not answer: {error}"}
    if log_paths is None:
        return {"problem": "The scheduler does not know yet where this job writes its log."}
    paths = {Stream.STDOUT.value: str(log_paths.stdout)}
    if log_paths.stderr != log_paths.stdout:
        paths[Stream.STDERR.value] = str(log_paths.stderr)
    return paths


def _read(log: RunningLog, before: Seen | None) -> RunningLog:
    job = _as_job(log.archived, log.job_id, log.archived.submitted_at, {})
    if log.path == os.devnull:
        return replace(log, problem="The job writes to /dev/null.")
    try:
        with open_log(Path(log.path), log_access(job)) as descriptor:
            block = starred_block(
                descriptor, read_back(descriptor, lines=LINES, budget_bytes=TAIL_BYTES)
            )
            status = os.fstat(descriptor)
            head = os.pread(descriptor, min(HEAD_BYTES, before.size) if before else 0, 0)
            seen = Seen(
                status.st_ino, status.st_size, zlib.crc32(os.pread(descriptor, HEAD_BYTES, 0))
            )
            notice = _notice(before, seen, head)
    except LogMissing as error:
        if before:
            gone = " It was there before: it has been deleted or moved."
        else:
            gone = " The job may not have started."
        return replace(log, problem=f"{error}.{gone}", seen=before)
    except LogError as error:
        return replace(log, problem=f"{error}.", seen=before)
    return replace(log, lines=mark_lines(job, block), seen=seen, notice=notice)


def _notice(before: Seen | None, now: Seen, head: bytes) -> str:
    """Return how a file changed, as a key of `NOTICES`; "" if it only grew."""
    if before is None or not before.size:
        return ""
    if now.inode != before.inode:
        return "replaced"
    if now.size < before.size:
        return "shrank"
    return "overwritten" if zlib.crc32(head) != before.head else ""


def _finished(archived: ArchivedJob, job_id: str) -> Job | None:
    """Return the record of the last attempt, unless the scheduler may restart the job."""
    around = (archived.submitted_at - CLOCK_TOLERANCE, archived.submitted_at + CLOCK_TOLERANCE)
    jobs = Job.objects.filter(
        cluster=archived.cluster_id, spool_id=archived.job_id, submitted_at__range=around
    )
    last = jobs.filter(job_id=job_id).order_by("attempt").last()
    if last is None or JobState(last.state) in RESTARTED:
        return None
    return last


def _as_job(
    archived: ArchivedJob, job_id: str, at: datetime, environment: Mapping[str, str]
) -> Job:
    """Return a running job as an unsaved row, with its owner and the place of its submission."""
    return Job(
        cluster=archived.cluster,
        job_id=job_id,
        raw_id=int(archived.job_id) if archived.job_id.isdecimal() else 0,
        spool_id=archived.job_id,
        state=JobState.COMPLETED,
        submitted_at=archived.submitted_at,
        started_at=archived.captured_at,
        ended_at=max(at, archived.captured_at + timedelta(seconds=1)),
        user=archived.user,
        account=archived.account,
        name=archived.name,
        experiment=archived.experiment,
        work_dir=next((environment[name] for name in _DIRECTORIES if environment.get(name)), ""),
    )


def _variables(environment: bytes) -> dict[str, str]:
    pairs = variables_in(environment)
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, value in pairs}


def _request_key(archived_id: int) -> str:
    return f"running-log:{archived_id}:asked"


def _key(archived: ArchivedJob, job_id: str) -> str:
    return f"running-log:{archived.pk}:{zlib.crc32(job_id.encode())}"
