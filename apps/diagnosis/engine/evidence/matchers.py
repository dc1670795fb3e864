"""Find which of many expressions match a text: with RE2, or several times as fast with Hyperscan.

Hyperscan is optional, and reads expressions as PCRE does. It gets only those that match the same
text, or more, there than in RE2. RE2 checks each of its matches.
"""

import re
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Protocol

import re2

try:
    import hyperscan
except ImportError:  # optional: requirements-hyperscan.txt
    hyperscan = None

#: Memory of RE2 for the states it has seen, for one pattern and for all together. A hostile log
#: creates new states all the time; when the memory is full, RE2 clears it and continues.
PATTERN_MEMORY_BYTES = 8 * 1024 * 1024
SET_MEMORY_BYTES = 16 * 1024 * 1024
#: Expressions without classes by number or name, which may differ for bytes that are not ASCII, and
#: without anchors of the text.
_SAME_IN_PCRE = re.compile(r"(?:[^\\\x80-\U0010ffff]|\\[dDwWsSbBnrtf]|\\[!-/:-@\[-`{-~ ])*")
#: The one character that is a space in PCRE but not in RE2.
_VERTICAL_TAB = b"\v"


class Matcher(Protocol):
    """Finds the expressions that match a text, by their index in the list.

    A `fast` matcher may also return some that do not match.
    """

    fast: bool

    def match(self, data: bytes, begin: int = 0, end: int | None = None) -> Mapping[int, int]:
        """Return the expressions that match in a part of `data`, which is treated as a text alone.

        Maps the index of each expression to a position in that text before which no match ends.
        """
        ...


def latin_options(memory_bytes: int = PATTERN_MEMORY_BYTES) -> re2.Options:
    """Return options for Latin-1, in which every byte is a character and spans are byte offsets."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = memory_bytes
    options.log_errors = False
    return options


class Re2Matcher:
    """A set of expressions in RE2, which returns only those that match."""

    fast = False

    def __init__(self, regexes: Sequence[str]) -> None:
        """Compile valid expressions. Raises `re2.error` if together they need too much memory."""
        self._set = re2.Set.SearchSet(latin_options(SET_MEMORY_BYTES))
        for regex in regexes:
            self._set.Add(f"(?m){regex}")
        self._set.Compile()

    def match(self, data: bytes, begin: int = 0, end: int | None = None) -> Mapping[int, int]:
        return dict.fromkeys(self._set.Match(data[begin:end]) or (), 0)


class HyperscanMatcher:
    """A database of expressions in Hyperscan.

    RE2 matches those that Hyperscan may read differently or cannot compile.
    """

    fast = True

    def __init__(self, regexes: Sequence[str], exact: Re2Matcher) -> None:
        """Take valid expressions and the exact matcher for all of them.

        They are compiled on first use, which takes 300 ms.
        """
        self._regexes = regexes
        self._exact = exact
        self._lock = threading.Lock()
        self._own = threading.local()

    def match(self, data: bytes, begin: int = 0, end: int | None = None) -> Mapping[int, int]:
        if data.find(_VERTICAL_TAB, begin, end) >= 0:
            return self._exact.match(data, begin, end)
        with self._lock:
            database, rest, others = self._compiled
        if not hasattr(self._own, "scratch"):  # threads must not share it
            self._own.scratch = hyperscan.Scratch(database)
        if others:
            begins = {rest[place]: 0 for place in others.match(data, begin, end)}
        else:
            begins = {}
        database.scan(
            memoryview(data)[begin:end],
            match_event_handler=lambda place, _start, end, *_: (
                begins.setdefault(place, end) and None
            ),
            scratch=self._own.scratch,
        )
        return begins

    @cached_property
    def _compiled(self) -> "tuple[hyperscan.Database, list[int], Re2Matcher | None]":
        """Compile the database, and a matcher for the other expressions with their indexes."""
        same = {}
        for place, regex in enumerate(self._regexes):
            if _SAME_IN_PCRE.fullmatch(regex):
                same[place] = regex
        try:
            database = _database(same)
        except hyperscan.error:  # from at least one of them
            same = {place: regex for place, regex in same.items() if _compiles(regex)}
            database = _database(same)
        rest = [place for place in range(len(self._regexes)) if place not in same]
        return (
            database,
            rest,
            Re2Matcher([self._regexes[place] for place in rest]) if rest else None,
        )


def _compiles(regex: str) -> bool:
    try:
        return bool(_database({0: regex}))
    except hyperscan.error:
        return False


def _database(regexes: Mapping[int, str]) -> "hyperscan.Database":
    """Compile expressions by index.

    Hyperscan may simplify a complex one so that it matches more.
    """
    flags = (
        hyperscan.HS_FLAG_MULTILINE | hyperscan.HS_FLAG_SINGLEMATCH | hyperscan.HS_FLAG_PREFILTER
    )
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=[regex.encode() for regex in regexes.values()] or [_VERTICAL_TAB],
        ids=list(regexes) or [0],
        elements=len(regexes) or 1,
        flags=flags,
    )
    return database


def matcher_of_large_logs(regexes: Sequence[str], exact: Re2Matcher) -> Matcher:
    """Return the fastest matcher available.

    It may return expressions that do not match, but misses none that does.
    """
    return HyperscanMatcher(regexes, exact) if hyperscan else exact
