"""Find which of many expressions match a text: exactly by RE2, several times as fast by Hyperscan,
if installed.

Hyperscan reads expressions as PCRE does. It is asked only for those that mean the same, or match
more, there than in RE2, and RE2 has the last word on what it finds.
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

#: What RE2 may keep of the states it has seen, of one pattern and of all together: a hostile log
#: makes new ones all the time. Beyond it RE2 begins anew, and goes on.
PATTERN_MEMORY_BYTES = 8 * 1024 * 1024
SET_MEMORY_BYTES = 16 * 1024 * 1024
#: Without classes by number or name, which may differ for bytes that are not ASCII, and without
#: anchors of the text.
_SAME_IN_PCRE = re.compile(r"(?:[^\\\x80-\U0010ffff]|\\[dDwWsSbBnrtf]|\\[!-/:-@\[-`{-~ ])*")
#: The one character that is a space in PCRE and none in RE2.
_VERTICAL_TAB = b"\v"


class Matcher(Protocol):
    """Finds the expressions that match a text, by their place in the list.

    A `fast` one may name some too many.
    """

    fast: bool

    def match(self, data: bytes, begin: int = 0, end: int | None = None) -> Mapping[int, int]:
        """Return the expressions that match somewhere in a part of `data`,
        taken as a text of its own.

        With each comes a position in that text: none of its matches ends before.
        """
        ...


def latin_options(memory_bytes: int = PATTERN_MEMORY_BYTES) -> re2.Options:
    """Latin-1 makes every byte a character: any log matches, and spans are byte offsets."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = memory_bytes
    options.log_errors = False
    return options


class Re2Matcher:
    """RE2's set of expressions, which names none too many."""

    fast = False

    def __init__(self, regexes: Sequence[str]) -> None:
        """Compile valid expressions. Raises `re2.error` if they need too much memory together."""
        self._set = re2.Set.SearchSet(latin_options(SET_MEMORY_BYTES))
        for regex in regexes:
            self._set.Add(f"(?m){regex}")
        self._set.Compile()

    def match(self, data: bytes, begin: int = 0, end: int | None = None) -> Mapping[int, int]:
        return dict.fromkeys(self._set.Match(data[begin:end]) or (), 0)


class HyperscanMatcher:
    """Hyperscan's database of expressions; RE2 matches those that Hyperscan may read otherwise,
    or cannot compile.
    """

    fast = True

    def __init__(self, regexes: Sequence[str], exact: Re2Matcher) -> None:
        """Take valid expressions and the matcher of them all.

        They are compiled when first needed: it takes 300 ms.
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
        if not hasattr(self._own, "scratch"):  # no two threads may share one
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
        """Compile the database, and a matcher of the rest with the places of its expressions."""
        same = {}
        for place, regex in enumerate(self._regexes):
            if _SAME_IN_PCRE.fullmatch(regex):
                same[place] = regex
        try:
            database = _database(same)
        except hyperscan.error:  # of one of them
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
    """Compile expressions by their place. A complex one may be simplified: it then matches more."""
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
    """Return the fastest matcher there is: it may name expressions that do not match,
    but leaves out none that does.
    """
    return HyperscanMatcher(regexes, exact) if hyperscan else exact
