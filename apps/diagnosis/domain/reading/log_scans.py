"""Scan the logs of single jobs for known errors without storing a verdict, for data quality."""

from dataclasses import dataclass
from datetime import datetime

from apps.diagnosis.domain.known_errors.current import current_classifiers
from apps.diagnosis.domain.reading.attempts import attempts_of
from apps.diagnosis.domain.reading.job_facts import facts_for_logs
from apps.diagnosis.domain.reading.log_access import locate_logs
from apps.diagnosis.domain.reading.log_ends import read_end
from apps.diagnosis.engine.base import Hit
from apps.diagnosis.engine.diagnose import diagnose
from apps.diagnosis.enums import Role
from apps.jobs.models import Job


@dataclass(frozen=True)
class LogScan:
    """Result of a scan: whether a log could be read, and the known errors with role "cause"."""

    read: bool
    hits: tuple[Hit, ...] = ()


def scan_logs(*, job: Job, at: datetime) -> LogScan:
    """Scan the ends of a job's logs; ask the scheduler for unknown log paths and store them."""
    attempts = attempts_of(job)
    blocks = []
    for stream, path in locate_logs(job=job, at=at):
        if (block := read_end(job, attempts, stream, path)) is not None:
            blocks.append(block)
    if not blocks:
        return LogScan(read=False)

    diagnosis = diagnose(facts_for_logs(job), blocks, classifiers=current_classifiers())
    return LogScan(
        read=True, hits=tuple(hit for hit in diagnosis.hits if hit.pattern.role is Role.CAUSE)
    )
