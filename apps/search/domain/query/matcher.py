"""Match texts with the words and phrases of a query, and find the matching parts.

Independent of Django and the database. Expressions are matched elsewhere, within a budget.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from apps.archive.domain.search import words as word_rules
from apps.search.domain.query.clauses import Expression, Phrase, Query, Word

Span = tuple[int, int]

#: Letters that have two lower cases, and the one that texts are compared by: the sigma at the end
#: of a word, and the micro sign. `str.lower` chooses by what follows, which a part of a word lacks.
TWO_LOWER_CASES = {"ς": "σ", "µ": "μ"}


@dataclass(frozen=True, slots=True)
class Sought:
    """The parts of a word: each must be a word of the text, or the start of one."""

    parts: tuple[str, ...]
    starts: bool

    @staticmethod
    def of(word: Word) -> "Sought":
        text = in_lower_case(word.text)
        if word.starts:
            return Sought((_cut(text),), True)
        return Sought(tuple(_cut(chunk) for chunk in word_rules.split_words(text)), False)

    def fits(self, line_word: str, part: str) -> bool:
        return _cut(line_word).startswith(part) if self.starts else _cut(line_word) == part


def text_of(data: bytes) -> str:
    """Return a log or a script as text, with bytes that are no UTF-8 as escapes."""
    return data.decode("utf-8", "backslashreplace")


def in_lower_case(text: str) -> str:
    """Return a text in lower case, in which any part of it in lower case is found."""
    lowered = text.lower()
    if not lowered.isascii():
        for letter, same in TWO_LOWER_CASES.items():
            lowered = lowered.replace(letter, same)
    return lowered


class QueryMatcher:
    """Matches texts with the words and phrases of a query.

    The texts are given as `in_lower_case(text_of(data))`.
    """

    def __init__(self, query: Query) -> None:
        self._words: list[tuple[Sought, bool]] = []
        self._phrases: list[tuple[tuple[str, ...], bool]] = []
        for clause in query.texts:
            if isinstance(clause, Word):
                self._words.append((Sought.of(clause), clause.negated))
            elif isinstance(clause, Phrase):
                pieces = tuple(in_lower_case(piece) for piece in clause.pieces)
                self._phrases.append((pieces, clause.negated))

    @property
    def decides(self) -> bool:
        """Whether there is a word or a phrase."""
        return bool(self._words or self._phrases)

    def fits(self, text: str) -> bool:
        """Return whether a text has all words and phrases of the query, and no negated one."""
        for pieces, negated in self._phrases:
            if _has_phrase(text, pieces) is negated:
                return False
        for sought, negated in self._words:
            has_word = all(_has_word(text, sought, part) for part in sought.parts)
            if has_word is negated:
                return False
        return True

    def spans(self, line: str) -> list[Span]:
        """Return which parts of a line in lower case are sought, in order, without overlaps."""
        spans: list[Span] = []
        for pieces, negated in self._phrases:
            if not negated:
                spans += _phrase_spans(line, pieces)
        for sought, negated in self._words:
            if not negated:
                for part in sought.parts:
                    spans += _word_spans(line, sought, part)
        return merge_spans(spans)


def merge_spans(spans: Sequence[Span]) -> list[Span]:
    """Return the spans in order; spans that overlap are merged."""
    result: list[Span] = []
    for start, end in sorted(spans):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result


def expressions_of(query: Query) -> list[Expression]:
    return [clause for clause in query.texts if isinstance(clause, Expression)]


def _cut(word: str) -> str:
    """Return as much of a word as the index knows."""
    return word[: word_rules.LONGEST_WORD]


def _has_phrase(text: str, pieces: Sequence[str]) -> bool:
    if not all(piece in text for piece in pieces):
        return False
    if len(pieces) == 1:
        return True
    # The longest piece is in the fewest lines.
    longest = max(pieces, key=len)
    return any(_places(line, pieces) for line in _lines_with(text, longest))


def _places(line: str, pieces: Sequence[str]) -> list[int]:
    """Return where the pieces of a phrase begin, one behind the other; none if one is missing."""
    places = []
    position = 0
    for piece in pieces:
        start = line.find(piece, position)
        if start < 0:
            return []
        places.append(start)
        position = start + len(piece)
    return places


def _phrase_spans(line: str, pieces: Sequence[str]) -> Iterator[Span]:
    """Yield where a line has the pieces of a phrase, again and again."""
    position = 0
    while places := _places(line[position:], pieces):
        for place, piece in zip(places, pieces, strict=True):
            start = position + place
            yield start, start + len(piece)
        position = start + len(pieces[-1])


def _lines_with(text: str, piece: str) -> Iterator[str]:
    """Yield the lines that contain a piece of text."""
    position = 0
    while (start := text.find(piece, position)) >= 0:
        first = text.rfind("\n", 0, start) + 1
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield text[first:end]
        position = end + 1


def _has_word(text: str, sought: Sought, part: str) -> bool:
    # Splitting a line into words takes longer than finding the few lines that may have one.
    return any(_line_has_word(line, sought, part) for line in _lines_with(text, part))


def _line_has_word(line: str, sought: Sought, part: str) -> bool:
    return any(sought.fits(word, part) for word in word_rules.words_in(line))


def _word_spans(line: str, sought: Sought, part: str) -> Iterator[Span]:
    """Yield where a line has a word."""
    if part not in line:
        return
    hits = {word for word in word_rules.words_in(line) if sought.fits(word, part)}
    # A word is not marked within another one: "error" is no part of "errors".
    for word in hits:
        for match in re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", line):
            yield match.span()
