"""Reading the logs of single jobs for known errors, with nothing kept: for jobs that nobody doubts."""

import os
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from django.conf import settings

from apps.diagnosis.domain.facts import facts_of
from apps.diagnosis.domain.log_paths import locate_logs
from apps.diagnosis.engine.base import Block, Hit
from apps.diagnosis.engine.diagnose import diagnose
from apps.diagnosis.engine.registry import classifiers
from apps.diagnosis.engine.tail import BUDGET_BYTES, LogError, open_log, read_back
from apps.diagnosis.enums import Role, Stream
from apps.jobs.models import Job


@dataclass(frozen=True)
class LogLooked:
    """Whether a log of the job could be read, and the known errors in it that are causes."""

    read: bool
    hits: tuple[Hit, ...] = ()


def look_for_causes(*, job: Job, at: datetime) -> LogLooked:
    """Read the ends of a job's logs; where they lie is asked of the scheduler and kept, if it is not known yet."""
    blocks = [block for stream, path in locate_logs(job=job, at=at) if (block := _read(stream, path)) is not None]
    if not blocks:
        return LogLooked(read=False)
    found = diagnose(facts_of(job), blocks, classifiers=classifiers())
    return LogLooked(read=True, hits=tuple(hit for hit in found.hits if hit.pattern.role is Role.CAUSE))


def _read(stream: Stream, path: str) -> Block | None:
    try:
        with open_log(Path(path), settings.LOG_ROOTS) as descriptor:
            block = read_back(descriptor, budget_bytes=min(BUDGET_BYTES, max(1, os.fstat(descriptor).st_size)))
    except LogError:
        return None
    return replace(block, stream=stream)
