"""Split logs into chunks of whole lines, and number their lines on request."""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import islice

import re2

from apps.diagnosis.engine.base import Block
from apps.diagnosis.engine.formats.plain_lines import BOMS, clean, is_clean

CHUNK_BYTES = 64 * 1024
#: A longer line is examined in pieces.
LONG_LINE_BYTES = 256 * 1024
#: Number of chunks examined together by a fast matcher.
STRIDE_CHUNKS = 16
#: Number of bytes counted at once: this fits into the cache of a core.
_COUNTED_BYTES = 256 * 1024
#: Below this size, `bytes.count` is faster.
_FEW_BYTES = 4096
_NEWLINE = 10


def newlines(data: bytes, begin: int = 0, end: int | None = None) -> int:
    """Count the newlines in a part of a log.

    NumPy counts large parts faster than `bytes.count`, which is only fast where lines are long.
    """
    if end is not None and end - begin < _FEW_BYTES:
        return data.count(b"\n", begin, end)
    import numpy as np

    text = np.frombuffer(data, np.uint8)[begin:end]
    return sum(
        int(np.count_nonzero(text[position : position + _COUNTED_BYTES] == _NEWLINE))
        for position in range(0, len(text), _COUNTED_BYTES)
    )


def line_starts(data: bytes) -> list[int]:
    """Return the start of each line."""
    import numpy as np

    return [0, *(np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE) + 1).tolist()]


class LineNumbers:
    """Line numbers of a block; no byte is counted twice if numbers are requested in order."""

    def __init__(self, block: Block) -> None:
        self._data = block.data
        self._position = 0
        self._number = block.first_line

    def at(self, position: int) -> int | None:
        """Return the number of the line at a position of the block; None if it is unknown."""
        if self._number is None:
            return None
        if position < self._position:
            self._number -= newlines(self._data, position, self._position)
        else:
            self._number += newlines(self._data, self._position, position)
        self._position = position
        return self._number


class Chunk:
    """Whole lines of a block, raw and clean, with their offset and the size of what follows."""

    def __init__(self, block: Block, numbers: LineNumbers, begin: int, end: int) -> None:
        self.raw = block.data[begin:end]
        self.text = clean(self.raw)
        self.offset = block.offset + begin
        self.left = len(block.data) - end
        self._numbers = numbers
        self._begin = begin

    def place_of(self, start: int) -> tuple[int, int | None]:
        """Return offset and number of the line that begins at `start` in the clean text."""
        if len(self.raw) != len(self.text):
            start = self._raw_starts[bisect_right(self._starts, start) - 1]
        return self.offset + start, self._numbers.at(self._begin + start)

    @cached_property
    def _starts(self) -> list[int]:
        return line_starts(self.text)

    @cached_property
    def _raw_starts(self) -> list[int]:
        return line_starts(self.raw)


def chunks(
    block: Block, begin: int = 0, *, skip: Callable[[int, int], int] | None = None
) -> Iterator[Chunk]:
    """Yield chunks of whole lines of about 64 kB; a line longer than 256 kB comes in pieces.

    `skip` takes the bounds of several chunks that need no cleaning, and returns the position before
    which none of them is of interest: chunks that end before it are left out.
    """
    data = block.data
    numbers = LineNumbers(block)
    ends = _ends(data, begin)
    while stride := list(islice(ends, STRIDE_CHUNKS if skip else 1)):
        if skip and _is_plain(data, [begin, *stride]):
            first = skip(begin, stride[-1])
        else:
            first = 0
        for end in stride:
            if end >= first:
                yield Chunk(block, numbers, begin, end)
            begin = end


def _ends(data: bytes, position: int) -> Iterator[int]:
    while position < len(data):
        limit = min(position + LONG_LINE_BYTES, len(data))
        position = data.find(b"\n", min(position + CHUNK_BYTES, len(data)) - 1, limit) + 1 or limit
        yield position


def _is_plain(data: bytes, bounds: list[int]) -> bool:
    """Return whether these chunks can be joined: they are whole lines with nothing to clean."""
    inner = all(data[bound - 1] == _NEWLINE for bound in bounds[1:-1])
    return (
        inner
        and is_clean(data, bounds[0], bounds[-1])
        and not any(data.startswith(BOMS, at) for at in bounds[:-1])
    )


def matching_lines(regex: re2._Regexp, chunk: bytes, first: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield start and text of each line in which a match begins.

    No match ends before `first`.
    """
    position = chunk.rfind(b"\n", 0, max(first - 1, 0)) + 1
    while position < len(chunk) and (match := regex.search(chunk, position)):
        start = chunk.rfind(b"\n", 0, match.start()) + 1
        end = chunk.find(b"\n", match.start())
        position = len(chunk) if end < 0 else end + 1
        yield start, chunk[start : position - (end >= 0)].rstrip(b"\r")
