"""Search a log of any size for a text or a regular expression of RE2, within a time budget."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from apps.accounts.models import User
from apps.core.domain.expressions.line_search import LineSearch, Span
from apps.core.domain.expressions.runs import TooCostly, expression_run
from apps.core.errors import InvalidFields
from apps.diagnosis.domain.reading.log_texts import LogText

STEP_BYTES = 1024 * 1024
BUDGET_SECONDS = 1.0
MARK_SECONDS = 0.5
MOST_MATCHES = 5000
MOST_CHARACTERS = 200
#: Marked matches on a page. A window of 400 kB can hold 200,000, and these take seconds to render.
MOST_MARKS = 5000
#: In a line longer than a window, a match across two windows is found up to this length.
_OVERLAP_BYTES = 1024


@dataclass(frozen=True, slots=True)
class LogSearch:
    """What to search for, from byte `since` on."""

    text: str
    regex: bool = False
    match_case: bool = False
    since: int = 0

    @property
    def expression(self) -> LineSearch:
        return LineSearch(self.text, self.regex, self.match_case)


@dataclass(frozen=True, slots=True)
class LogMatches:
    """Matching lines, by the offset of their first match.

    `reached` is where the search stopped; None at the end of the log.
    """

    search: LogSearch
    offsets: tuple[int, ...]
    reached: int | None


def search_log(
    text: LogText, search: LogSearch, *, user: User, seconds: float = BUDGET_SECONDS
) -> LogMatches:
    """Find the lines that match, up to `MOST_MATCHES` and within the budget.

    Raises `InvalidFields`, also if the expression is too costly for a single window.
    """
    if len(search.text) > MOST_CHARACTERS:
        raise InvalidFields({"find": [f"Search for at most {MOST_CHARACTERS} characters."]})
    offsets: list[int] = []
    first = max(search.since, text.begin)
    begin = first
    reached: int | None = None
    try:
        with _caller(search, user, seconds) as call:
            end = time.monotonic() + seconds
            if fault := call(LineSearch.fault, search.expression):
                raise InvalidFields({"find": [fault]})
            for begin, data in _windows(text, first):
                most = MOST_MATCHES + 1 - len(offsets)
                for match in call(LineSearch.first_matches, search.expression, data, most):
                    offsets.append(begin + match)
                if len(offsets) >= MOST_MATCHES or time.monotonic() > end:
                    reached = begin + len(data)
                    break
    except TooCostly as error:
        if begin == first:
            raise InvalidFields({"find": [str(error)]}) from None
        reached = begin
    if len(offsets) > MOST_MATCHES:
        reached = offsets[MOST_MATCHES]
        del offsets[MOST_MATCHES:]
    if reached is not None and reached >= text.end:
        reached = None
    return LogMatches(search, tuple(offsets), reached)


def spans_in(lines: Sequence[bytes], search: LogSearch, *, user: User) -> list[list[Span]]:
    """Return start and end of the matches in each line; none if the expression takes too long.

    Every line has its first match; the more lines match, the fewer others of each are returned.
    """
    most_of_a_line = max(1, MOST_MARKS // max(1, len(lines)))
    try:
        with _caller(search, user, MARK_SECONDS) as call:
            spans: list[list[Span]] = call(
                LineSearch.spans, search.expression, lines, most_of_a_line
            )
    except TooCostly:
        return [[] for _ in lines]
    return spans


@contextmanager
def _caller(search: LogSearch, user: User, seconds: float) -> Iterator[Callable[..., Any]]:
    """Yield a function that runs others: here for a text, in a worker for an expression.

    The worker is killed if an expression takes too long.
    """
    if not search.regex:
        yield lambda function, *arguments: function(*arguments)
        return
    with expression_run(user.pk, seconds=seconds) as run:
        yield run.call


def _windows(text: LogText, begin: int) -> Iterator[tuple[int, bytes]]:
    """Yield windows of whole lines; of a line longer than a window, overlapping parts."""
    while begin < text.end:
        data = text.read(begin, begin + STEP_BYTES)
        if not data:  # the file has shrunk
            return
        is_last = begin + len(data) >= text.end
        after_last_line = data.rfind(b"\n") + 1
        if is_last:
            yield begin, data
            return
        if after_last_line:
            yield begin, data[:after_last_line]
            begin += after_last_line
        else:
            yield begin, data
            begin += max(len(data) - _OVERLAP_BYTES, 1)
