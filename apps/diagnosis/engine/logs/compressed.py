"""Read a log compressed with gzip, zstd or xz, up to the maximum size of a log."""

import gzip
import lzma
import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

import zstandard

from apps.diagnosis.engine.logs.tail import WHOLE, LogPart

#: Maximum size of the decompressed text: a decompression bomb costs two seconds.
OUTPUT_BYTES = 256 * 1024 * 1024
_STEP = 1024 * 1024
_MAGIC = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\x00")
_DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError)


@contextmanager
def opened_text(descriptor: int, part: LogPart = WHOLE) -> Iterator[int]:
    """Yield a descriptor of a log's text: the file, or a temporary file with decompressed text.

    At most 256 MB are decompressed; what follows damaged data is left out. Offsets refer to the
    text. A log that is only a part of its file is not decompressed.
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
            pass  # the text before the damage is still worth reading
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
