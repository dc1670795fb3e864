"""Replace secrets in logs by stars before logs are stored or shown."""

import os
from dataclasses import replace

from apps.core.domain.secrets.patterns import (
    CONTEXT_BYTES,
    SECRET_HINT,
    Span,
    private_keys_in,
    secrets_in,
)
from apps.diagnosis.engine.base import Block
from apps.diagnosis.engine.evidence.catalogue import text_of
from apps.diagnosis.engine.formats.chunks import matching_lines

#: Small, because each search copies its chunk.
_CHUNK = 4 * 1024


def starred(data: bytes) -> bytes:
    """Return a log with its secrets starred; length and lines stay the same, and so do offsets."""
    if not SECRET_HINT.search(data):
        return data
    parts = []
    position = 0
    data = _star(data, private_keys_in(data))
    while position < len(data):
        end = data.find(b"\n", min(position + _CHUNK, len(data)) - 1) + 1 or len(data)
        parts.append(_chunk(data[position:end]))
        position = end
    return b"".join(parts)


def starred_part(descriptor: int, data: bytes, offset: int) -> bytes:
    """Return a part of a log with its secrets starred.

    The bytes around the part are read to detect a secret that crosses its bounds.
    """
    begin = max(0, offset - CONTEXT_BYTES)
    before = os.pread(descriptor, offset - begin, begin)
    after = os.pread(descriptor, CONTEXT_BYTES, offset + len(data))
    if not any(SECRET_HINT.search(part) for part in (before, data, after)):
        return data
    return starred(before + data + after)[len(before) : len(before) + len(data)]


def starred_text(line: str) -> str:
    """Return a line of a log, for storage or display, with its secrets starred."""
    return text_of(starred(line.encode()))


def starred_block(descriptor: int, block: Block) -> Block:
    """Return a block of a log with its secrets starred; reads the file around it."""
    return replace(block, data=starred_part(descriptor, block.data, block.offset))


def _chunk(chunk: bytes) -> bytes:
    starry = bytearray(chunk)
    for start, line in matching_lines(SECRET_HINT, chunk):
        starry[start : start + len(line)] = _star(line, secrets_in(line))
    return bytes(starry)


def _star(data: bytes, spans: list[Span]) -> bytes:
    """Replace all bytes of these spans by stars, except line ends."""
    parts = []
    position = 0
    for begin, end in spans:
        secret = data[begin:end]
        lines = [b"*" * len(line) for line in secret.split(b"\n")]
        parts += [data[position:begin], b"\n".join(lines)]
        position = end
    return b"".join((*parts, data[position:]))
