"""Compression by zstd with a trained dictionary, which stores common parts of contents once."""

from collections.abc import Sequence

from zstandard import (
    ZstdCompressionDict,
    ZstdCompressor,
    ZstdDecompressor,
    ZstdError,
    frame_content_size,
    train_dictionary,
)

LEVEL = 3  # with a dictionary, level 4 saves no more and takes three times the memory
DICTIONARY_BYTES = 256 * 1024


class Compressor:
    """Compresses many contents with one dictionary, or without one."""

    def __init__(self, dictionary: ZstdCompressionDict | None) -> None:
        if dictionary:
            dictionary.precompute_compress(level=LEVEL)
        self._compressor = ZstdCompressor(level=LEVEL, dict_data=dictionary)

    def compress(self, content: bytes) -> bytes:
        return self._compressor.compress(content)


def decompress(data: bytes, dictionary: ZstdCompressionDict | None, size_bytes: int) -> bytes:
    """Return the content of `size_bytes`. Raises `ValueError` if `data` is damaged."""
    try:
        if (size := frame_content_size(data)) != size_bytes:  # checked before memory is allocated
            raise ValueError(f"has {size} bytes, was stored with {size_bytes}")
        return ZstdDecompressor(dict_data=dictionary).decompress(data)
    except ZstdError as error:
        raise ValueError(str(error)) from error


def decompress_start(data: bytes, dictionary: ZstdCompressionDict | None, size_bytes: int) -> bytes:
    """Return the first bytes of the content without decompressing the rest.

    Raises `ValueError` as `decompress` does.
    """
    try:
        with ZstdDecompressor(dict_data=dictionary).stream_reader(data) as reader:
            return reader.read(size_bytes)
    except ZstdError as error:
        raise ValueError(str(error)) from error


def load_dictionary(data: bytes) -> ZstdCompressionDict:
    return ZstdCompressionDict(data)


def train_dictionary_on(samples: Sequence[bytes]) -> bytes | None:
    """Return a dictionary of the common parts of `samples`, or None if there are too few."""
    try:
        return train_dictionary(DICTIONARY_BYTES, list(samples)).as_bytes()
    except ZstdError:
        return None
