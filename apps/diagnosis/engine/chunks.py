"""Logs in chunks of whole lines, and the numbers of their lines,
which are counted only on request.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import islice

import re2

from apps.diagnosis.engine.base import Block
from apps.diagnosis.engine.plain_lines import BOMS, clean, is_clean

CHUNK_BYTES = 64 * 1024
#: A longer line is looked at in pieces.
LONG_LINE_BYTES = 256 * 1024
#: So many chunks are looked at together where that is fast.
STRIDE_CHUNKS = 16
#: So much is counted at once: what fits into the cache of a core.
_COUNTED_BYTES = 256 * 1024
#: Of so little `bytes.count` is faster.
_FEW_BYTES = 4096
_NEWLINE = 10


def newlines(data: bytes, begin: int = 0, end: int | None = None) -> int:
    """Count the newlines of a part of a log: if it is large, faster than `bytes.count`,
    which suits few lines only.
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
    """Return where each line begins."""
    import numpy as np

    return [0, *(np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE) + 1).tolist()]


class LineNumbers:
    """Numbers of the lines of a block; no byte is counted twice if they are asked for in order."""

    def __init__(self, block: Block) -> None:
        self._data = block.data
        self._position = 0
        self._number = block.first_line

    def at(self, position: int) -> int | None:
        """Return the number of the line at a position of the block;
        None if the block does not know its own.
        """
        if self._number is None:
            return None
        if position < self._position:
            self._number -= newlines(self._data, position, self._position)
        else:
            self._number += newlines(self._data, self._position, position)
        self._position = position
        return self._number


class Chunk:
    """Some lines of a block: as they are, and clean; the offset of the block, their position in it,
    what follows.
    """

    def __init__(self, block: Block, numbers: LineNumbers, begin: int, end: int) -> None:
        self.raw = block.data[begin:end]
        self.text = clean(self.raw)
        self.offset = block.offset + begin
        self.left = len(block.data) - end
        self._numbers = numbers
        self._begin = begin

    def place_of(self, start: int) -> tuple[int, int | None]:
        """Return offset and number of the line that begins at `start` of the clean text."""
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
    """Yield chunks of whole lines, of about 64 kB; a line longer than 256 kB comes in pieces.

    Of several chunks that need no cleaning, those are left out that end before what `skip` returns
    for all of them.
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
    """Return whether these chunks are whole lines without anything to clean,
    so that they can be joined.
    """
    inner = all(data[bound - 1] == _NEWLINE for bound in bounds[1:-1])
    return (
        inner
        and is_clean(data, bounds[0], bounds[-1])
        and not any(data.startswith(BOMS, at) for at in bounds[:-1])
    )


def matching_lines(regex: re2._Regexp, chunk: bytes, first: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield start and text of each line in which a match begins,
    from the line in which the first match may end.
    """
    position = chunk.rfind(b"\n", 0, max(first - 1, 0)) + 1
    while position < len(chunk) and (match := regex.search(chunk, position)):
        start = chunk.rfind(b"\n", 0, match.start()) + 1
        end = chunk.find(b"\n", match.start())
        position = len(chunk) if end < 0 else end + 1
        yield start, chunk[start : position - (end >= 0)].rstrip(b"\r")
