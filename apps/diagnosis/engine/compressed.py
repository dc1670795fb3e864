"""Read a compressed log: gzip, zstd or xz, never more of it than a log may have."""

import gzip
import lzma
import os
import tempfile
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

import zstandard

from apps.diagnosis.engine.base import Block

#: So much is decompressed at most: a bomb costs two seconds.
OUTPUT_BYTES = 256 * 1024 * 1024
_STEP = 1024 * 1024
_MAGIC = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\x00")
_DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError)


def is_compressed(descriptor: int) -> bool:
    """Tell by its first bytes whether a file is compressed."""
    return os.pread(descriptor, 6, 0).startswith(_MAGIC)


def read_compressed(descriptor: int, *, keep_bytes: int, tail_bytes: int) -> Block:
    """Return the text of a compressed log: whole up to `keep_bytes`, else its last `tail_bytes`.

    Offsets and size are those of the text. What is damaged or beyond 256 MB is left out.
    """
    steps: deque[bytes] = deque()
    total = held = 0
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        reader = _reader(file)
        try:
            while total < OUTPUT_BYTES and (data := reader.read(_STEP)):
                steps.append(data)
                total += len(data)
                held += len(data)
                while total > keep_bytes and held - len(steps[0]) >= tail_bytes:
                    held -= len(steps.popleft())
        except _DAMAGED:
            pass  # what came before is still worth reading
    text = b"".join(steps)
    offset = total - len(text)
    if offset:
        skip = text.find(b"\n") + 1
        text, offset = text[skip:], offset + skip
    return Block(text, offset, total, None if offset else 1)


@contextmanager
def decompressed(descriptor: int) -> Iterator[int]:
    """Yield the descriptor of a file with the text of a compressed log, at most 256 MB of it, gone afterwards."""
    with os.fdopen(os.dup(descriptor), "rb") as file, tempfile.TemporaryFile() as text:
        file.seek(0)
        reader, left = _reader(file), OUTPUT_BYTES
        try:
            while left > 0 and (data := reader.read(min(_STEP, left))):
                text.write(data)
                left -= len(data)
        except _DAMAGED:
            pass  # what came before is still worth reading
        text.flush()
        yield text.fileno()


def _reader(file: BinaryIO) -> BinaryIO:
    magic = os.pread(file.fileno(), 6, 0)
    if magic.startswith(_MAGIC[0]):
        return cast("BinaryIO", gzip.GzipFile(fileobj=file))
    if magic.startswith(_MAGIC[1]):
        return cast("BinaryIO", zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True))
    return cast("BinaryIO", lzma.LZMAFile(file))
