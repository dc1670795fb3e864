"""A captured job: as it was in the spool, with secrets masked."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class CapturedJob:
    """A job on its way to the sinks.

    Its key is (cluster, job_id, submitted_at): schedulers use ids again.

    The fields after `masked_names` are those of `SpooledJob`, except for `sender`: the capture host
    whose token sent the job, as the portal notes on receipt.
    """

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
    description: bytes = b""
    arguments: str = ""
    user: str = ""
    account: str = ""
    name: str = ""
    caveat: str = ""
    sender: str = ""

    @property
    def size_bytes(self) -> int:
        return len(self.script) + len(self.environment) + len(self.description)


Clock = Callable[[], datetime]
