"""Read a compressed log: gzip, zstd or xz, never more of it than a log may have."""

import gzip
import lzma
import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

import zstandard

from apps.diagnosis.engine.tail import WHOLE, LogPart

#: So much is decompressed at most: a bomb costs two seconds.
OUTPUT_BYTES = 256 * 1024 * 1024
_STEP = 1024 * 1024
_MAGIC = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\x00")
_DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError)


@contextmanager
def opened_text(descriptor: int, part: LogPart = WHOLE) -> Iterator[int]:
    """Yield a descriptor of a log's text: the file, or of a compressed one a file with its text,
    gone afterwards.

    At most 256 MB are decompressed; what is damaged is left out. Offsets are those of the text. A
    part of a file is not compressed.
    """
    if part != WHOLE or not os.pread(descriptor, 6, 0).startswith(_MAGIC):
        yield descriptor
        return
    with os.fdopen(os.dup(descriptor), "rb") as file, tempfile.TemporaryFile() as text:
        file.seek(0)
        reader = _reader(file)
        left = OUTPUT_BYTES
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
        return cast(
            "BinaryIO", zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        )
    return cast("BinaryIO", lzma.LZMAFile(file))
