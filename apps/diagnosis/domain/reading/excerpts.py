"""The stored end of a log, which is shown when the log no longer exists."""

import zstandard

from apps.diagnosis.engine.base import Block
from apps.diagnosis.engine.evidence.secrets import starred
from apps.diagnosis.engine.formats.chunks import newlines
from apps.diagnosis.models import LogExcerpt, LogHarvest

EXCERPT_BYTES = 64 * 1024


def excerpt_of(harvest: LogHarvest, path: str, block: Block) -> LogExcerpt:
    """Return the last 64 kB of a block with secrets starred, from a line start if possible."""
    cut = max(0, len(block.data) - EXCERPT_BYTES)
    if cut:
        line_start = block.data.find(b"\n", cut - 1) + 1
        cut = line_start if 0 < line_start < len(block.data) else cut
    before = newlines(block.data, 0, cut)
    return LogExcerpt(
        harvest=harvest,
        stream=block.stream,
        path=path,
        size_bytes=block.file_bytes,
        compressed=zstandard.ZstdCompressor().compress(starred(block.data[cut:])),
        first_offset=block.offset + cut,
        first_line_number=None if block.first_line is None else block.first_line + before,
    )
