"""How captured jobs travel to a portal: packed, in batches of a bounded size, which are read without trust."""

import json

from zstandard import ZstdDecompressor, ZstdError

from apps.archive.handover.batches import VERSION, BadBatch, jobs_of
from apps.archive.handover.entry import CapturedJob

MEDIA_TYPE = "application/vnd.opsportal.jobs"
MOST_JOBS = 5_000
MOST_BYTES = 64 * 1024 * 1024  # of a batch, decompressed
MOST_HEAD_BYTES = 8 * 1024 * 1024
MOST_SENT_BYTES = 32 * 1024 * 1024  # of a batch, compressed

_WINDOW_BYTES = 8 * 1024 * 1024  # what a sender may make the receiver hold to decompress


class BatchTooLarge(BadBatch):
    """A batch has too many jobs or bytes."""


def unpack(batch: bytes) -> list[CapturedJob]:
    """Return the jobs of a packed batch, which may come from anybody. Raises `BadBatch`."""
    try:
        with ZstdDecompressor(max_window_size=_WINDOW_BYTES).stream_reader(batch, read_across_frames=False) as reader:
            data = reader.read(MOST_BYTES + 1)
    except ZstdError as error:
        raise BadBatch(f"it cannot be decompressed: {error}") from error
    if len(data) > MOST_BYTES:
        raise BatchTooLarge(f"it has more than {MOST_BYTES:,} bytes")
    line, _, contents = data.partition(b"\n")
    if len(line) > MOST_HEAD_BYTES:
        raise BatchTooLarge(f"the description of its jobs has more than {MOST_HEAD_BYTES:,} bytes")
    try:
        head = json.loads(line)
        if head["version"] != VERSION:
            raise BadBatch(f"it is of version {head['version']!r}, this portal reads version {VERSION}")
        described = head["jobs"]
        if len(described) > MOST_JOBS:
            raise BatchTooLarge(f"it has more than {MOST_JOBS:,} jobs")
        return jobs_of(described, memoryview(contents))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        if isinstance(error, BadBatch):
            raise
        raise BadBatch(f"its first line does not describe jobs: {type(error).__name__}: {str(error)[:200]}") from error
