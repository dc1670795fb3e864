"""What capture hands on: one job as it was in the spool, secrets masked."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class CapturedJob:
    """A job on its way to the sinks. Its key is (cluster, job_id, submitted_at): schedulers use ids again."""

    cluster: str
    scheduler: str
    job_id: str
    submitted_at: datetime
    captured_at: datetime
    script: bytes
    environment: bytes
    request_key: str = ""
    stage: str = ""
    masked_names: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        return len(self.script) + len(self.environment)


@dataclass(frozen=True, slots=True)
class Identity:
    """Which directory or file a spool entry is; with its time it tells a known entry without reading it."""

    inode: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A captured job and its place in the journal."""

    seq: int
    job: CapturedJob


Clock = Callable[[], datetime]
