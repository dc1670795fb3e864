"""Scan the logs of single jobs for known errors without storing a verdict, for data quality."""

from dataclasses import dataclass, replace
from datetime import datetime

from apps.diagnosis.domain.known_errors.current import current_classifiers
from apps.diagnosis.domain.reading.attempts import attempts_of, open_own_log
from apps.diagnosis.domain.reading.job_facts import facts_for_logs
from apps.diagnosis.domain.reading.log_access import locate_logs
from apps.diagnosis.engine.base import Block, Hit
from apps.diagnosis.engine.diagnose import diagnose
from apps.diagnosis.engine.evidence.secrets import starred_block
from apps.diagnosis.engine.logs.tail import LogError, read_back
from apps.diagnosis.enums import Role, Stream
from apps.jobs.models import Job


@dataclass(frozen=True)
class LogScan:
    """Result of a scan: whether a log could be read, and the known errors with role "cause"."""

    read: bool
    hits: tuple[Hit, ...] = ()


def scan_logs(*, job: Job, at: datetime) -> LogScan:
    """Scan the ends of a job's logs; ask the scheduler for unknown log paths and store them."""
    read = [_read(job, stream, path) for stream, path in locate_logs(job=job, at=at)]
    blocks = [block for block in read if block is not None]
    if not blocks:
        return LogScan(read=False)

    diagnosis = diagnose(facts_for_logs(job), blocks, classifiers=current_classifiers())
    return LogScan(
        read=True, hits=tuple(hit for hit in diagnosis.hits if hit.pattern.role is Role.CAUSE)
    )


def _read(job: Job, stream: Stream, path: str) -> Block | None:
    try:
        with open_own_log(job, stream, path, attempts_of(job)) as (descriptor, part):
            return replace(starred_block(descriptor, read_back(descriptor, part)), stream=stream)
    except LogError:
        return None
