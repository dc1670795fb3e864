"""Scan the logs of single jobs for known errors without storing a verdict, for data quality."""

import os
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from apps.diagnosis.domain.facts import facts_of
from apps.diagnosis.domain.log_access import locate_logs, log_access
from apps.diagnosis.engine.base import Block, Hit
from apps.diagnosis.engine.diagnose import diagnose
from apps.diagnosis.engine.registry import classifiers
from apps.diagnosis.engine.tail import BUDGET_BYTES, LogError, open_log, read_back
from apps.diagnosis.enums import Role, Stream
from apps.jobs.models import Job


@dataclass(frozen=True)
class LogScan:
    """Result of a scan: whether a log could be read, and the known errors with role "cause"."""

    read: bool
    hits: tuple[Hit, ...] = ()


def scan_logs(*, job: Job, at: datetime) -> LogScan:
    """Scan the ends of a job's logs; unknown log paths are requested from the scheduler and stored."""
    blocks = [block for stream, path in locate_logs(job=job, at=at) if (block := _read(job, stream, path)) is not None]
    if not blocks:
        return LogScan(read=False)
    found = diagnose(facts_of(job), blocks, classifiers=classifiers())
    return LogScan(read=True, hits=tuple(hit for hit in found.hits if hit.pattern.role is Role.CAUSE))


def _read(job: Job, stream: Stream, path: str) -> Block | None:
    try:
        with open_log(Path(path), log_access(job)) as descriptor:
            block = read_back(descriptor, budget_bytes=min(BUDGET_BYTES, max(1, os.fstat(descriptor).st_size)))
    except LogError:
        return None
    return replace(block, stream=stream)
