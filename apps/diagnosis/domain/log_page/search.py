"""Search a log of any size: in windows, within a budget of time, for words or a regular expression of RE2."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import re2

from apps.core.errors import InvalidFields
from apps.diagnosis.domain.log_texts import LogText

STEP_BYTES = 1024 * 1024
BUDGET_SECONDS = 1.0
MOST_MATCHES = 5000
MOST_CHARACTERS = 200
#: An expression that is larger than this compiled is refused: its automaton would be slow.
_MAX_MEMORY_BYTES = 8 * 1024 * 1024
#: A match across two windows of one line that is longer than both is found up to this length.
_OVERLAP_BYTES = 1024
#: Of a line, so much is shown before a match.
REACH_BYTES = 8 * 1024


@dataclass(frozen=True, slots=True)
class Search:
    """What is searched, from the byte `since` on."""

    text: str
    regex: bool = False
    match_case: bool = False
    since: int = 0


@dataclass(frozen=True, slots=True)
class Matches:
    """Lines that match, by the offset of their first match; `reached` is where the budget ended, None at the end."""

    search: Search
    offsets: tuple[int, ...]
    reached: int | None
    expression: re2._Regexp


def compile_search(search: Search) -> re2._Regexp:
    """Compile what a user searches for. Raises `InvalidFields`."""
    if len(search.text) > MOST_CHARACTERS:
        raise InvalidFields({"find": [f"Search for at most {MOST_CHARACTERS} characters."]})
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = _MAX_MEMORY_BYTES
    options.log_errors = False
    options.never_nl = True
    options.case_sensitive = search.match_case
    text = search.text if search.regex else re2.escape(search.text)
    try:
        found = re2.compile(b"(?m)" + text.encode(), options)
    except re2.error as error:
        raise InvalidFields({"find": [f"Not a regular expression in RE2: {_words(error)}."]}) from None
    if found.search(b""):
        raise InvalidFields({"find": ["This matches every line. Search for something that is there."]})
    return found


def _words(error: Exception) -> str:
    first = error.args[0] if error.args else ""
    words = first.decode(errors="replace") if isinstance(first, bytes) else str(first)
    return words.replace("(?m)", "")


def search_log(text: LogText, search: Search, *, seconds: float = BUDGET_SECONDS) -> Matches:
    """Find the lines that match, until the end, the most matches or the budget. Raises `InvalidFields`."""
    expression = compile_search(search)
    end = time.monotonic() + seconds
    offsets: list[int] = []
    reached: int | None = None
    for begin, data in _windows(text, max(search.since, text.begin)):
        offsets += (begin + match for match in _matches(expression, data))
        if len(offsets) >= MOST_MATCHES or time.monotonic() > end:
            reached = begin + len(data)
            break
    if len(offsets) > MOST_MATCHES:
        reached = offsets[MOST_MATCHES]
        del offsets[MOST_MATCHES:]
    return Matches(search, tuple(offsets), reached if reached is not None and reached < text.end else None, expression)


def _windows(text: LogText, begin: int) -> Iterator[tuple[int, bytes]]:
    """Yield windows of whole lines; of a line longer than a window, parts that overlap."""
    while begin < text.end and (data := text.read(begin, begin + STEP_BYTES)):
        cut = len(data)
        if begin + cut < text.end:
            cut = data.rfind(b"\n") + 1 or cut
        yield begin, data[:cut]
        whole_lines = data[cut - 1 : cut] == b"\n" or begin + cut >= text.end
        begin += cut if whole_lines else max(cut - _OVERLAP_BYTES, 1)


def _matches(expression: re2._Regexp, data: bytes) -> Iterator[int]:
    """Yield the first match of each line that has one."""
    position = 0
    while position < len(data) and (match := expression.search(data, position)):
        yield match.start()
        position = data.find(b"\n", match.end()) + 1 or len(data)
