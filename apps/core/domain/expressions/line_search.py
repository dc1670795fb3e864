"""Search lines of logs for a text or for a user's expression.

Pages search for expressions in a process that can be killed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import re2

from apps.core.domain.expressions.problems import compile_fault, size_fault

#: Memory of RE2 for the states it has seen. With 8 MB, a costly expression takes seven times as
#: long.
MEMORY_BYTES = 1024 * 1024
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class LineSearch:
    """A search in single lines: for a text, or for a regular expression of RE2."""

    text: str
    regex: bool = False
    match_case: bool = False

    def fault(self) -> str:
        """Return why this search is not possible, "" if it is."""
        try:
            expression = _compile(self)
        except re2.error as error:
            return f"Not a regular expression in RE2: {compile_fault(error, self.text)}."
        if fault := size_fault(expression):
            return f"The expression {fault}."
        if expression.search(b""):
            return "This matches every line. Search for something that is there."
        return ""

    def matching(self, texts: Sequence[bytes]) -> list[bool]:
        """Return which texts have a line that matches."""
        expression = _compile(self)
        return [expression.search(text) is not None for text in texts]

    def first_matches(self, data: bytes, most: int) -> list[int]:
        """Return the start of the first match in each line, for the first `most` matching lines."""
        expression = _compile(self)
        begins: list[int] = []
        position = 0
        while position < len(data) and len(begins) < most:
            match = expression.search(data, position)
            if match is None:
                break
            begins.append(match.start())
            position = data.find(b"\n", match.end()) + 1 or len(data)
        return begins

    def spans(self, lines: Sequence[bytes], most_of_a_line: int) -> list[list[Span]]:
        """Return start and end of the first matches in each line, without empty ones."""
        expression = _compile(self)
        spans_of_lines = []
        for line in lines:
            matches = islice(expression.finditer(line), most_of_a_line)
            spans_of_lines.append(
                [match.span() for match in matches if match.end() > match.start()]
            )
        return spans_of_lines


@lru_cache(maxsize=4)
def _compile(search: LineSearch) -> re2._Regexp:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = MEMORY_BYTES
    options.log_errors = False
    options.never_nl = True
    options.case_sensitive = search.match_case
    text = search.text if search.regex else re2.escape(search.text)
    return re2.compile(b"(?m)" + text.encode(), options)
