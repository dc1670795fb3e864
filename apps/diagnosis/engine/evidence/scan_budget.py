"""Limit the CPU time of the search of a block.

Even a reviewed expression can be slow on a hostile log. RE2 takes linear time. However, on text
that keeps creating new states, a single expression of 20 characters takes 5 seconds per megabyte,
the whole catalogue otherwise 5 milliseconds.
"""

import time
from collections.abc import Mapping

from apps.diagnosis.engine.evidence.matchers import Re2Matcher

#: A block of 8 MB full of errors takes 0.4 s, or 1.2 s if Hyperscan has to compile first.
SECONDS = 3.0
#: The slowest patterns are skipped at most this often; then the search of the block stops.
MOST_ROUNDS = 2
#: To find the slow patterns, each is timed on this many pieces of the text, of this many bytes.
_SAMPLE_PIECES = 16
_PIECE_BYTES = 1024


class ScanBudget:
    """The CPU time of this thread for one block, and the patterns skipped to save it."""

    def __init__(self) -> None:
        self._end = time.thread_time() + SECONDS
        self.skipped: list[int] = []
        self.is_stopped = False
        self._rounds = 0
        self._slow_text = b""

    def is_used_up(self) -> bool:
        return time.thread_time() > self._end

    def note_searched(self, data: bytes, begin: int, end: int) -> None:
        """Keep a sample of the text just searched if the time is used up."""
        if not self._slow_text and self.is_used_up():
            self._slow_text = _sample(data[begin:end])

    @property
    def is_slow(self) -> bool:
        """Whether the search used up the time, so that patterns have to be skipped."""
        return bool(self._slow_text)

    def skip_slowest(self, regexes: Mapping[int, str]) -> list[int]:
        """Return the patterns to skip from here on and restart the clock, or stop the search."""
        if self._rounds == MOST_ROUNDS:
            self.is_stopped = True
            return []
        slowest = _slowest(regexes, self._slow_text)
        self._slow_text = b""
        self.skipped += slowest
        self._rounds += 1
        self._end = time.thread_time() + SECONDS
        return slowest


def _sample(text: bytes) -> bytes:
    """Return pieces from all over the text, because only a part of it may be slow."""
    step = max(_PIECE_BYTES, len(text) // _SAMPLE_PIECES)
    return b"".join(text[begin : begin + _PIECE_BYTES] for begin in range(0, len(text), step))


def _slowest(regexes: Mapping[int, str], text: bytes) -> list[int]:
    """Return the slowest patterns, those within a factor of four of the slowest.

    Only as many patterns are timed as the budget allows.
    """
    seconds: dict[int, float] = {}
    end = time.thread_time() + SECONDS
    for index, regex in regexes.items():
        matcher = Re2Matcher([regex])
        began = time.thread_time()
        matcher.match(text)
        seconds[index] = time.thread_time() - began
        if time.thread_time() > end:
            break
    slow = max(seconds.values(), default=0.0) / 4
    return [index for index, taken in seconds.items() if taken >= slow]
