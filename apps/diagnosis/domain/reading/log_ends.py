"""Read the end of one of a job's logs, where nothing but its text matters."""

from collections.abc import Sequence
from dataclasses import replace

from apps.diagnosis.domain.reading.attempts import open_own_log
from apps.diagnosis.engine.base import Block
from apps.diagnosis.engine.evidence.secrets import starred_block
from apps.diagnosis.engine.logs.compressed import opened_text
from apps.diagnosis.engine.logs.tail import LogError, read_back
from apps.diagnosis.enums import Stream
from apps.jobs.models import Job


def read_end(job: Job, attempts: Sequence[Job], stream: Stream, path: str) -> Block | None:
    """Return the end of a log without secrets; None if it cannot be read."""
    try:
        with (
            open_own_log(job, stream, path, attempts) as (file, part),
            opened_text(file, part) as descriptor,
        ):
            return replace(starred_block(descriptor, read_back(descriptor, part)), stream=stream)
    except LogError:
        return None
