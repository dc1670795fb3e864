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
class WordParts:
    """The parts of a word of a query: each must be a word of the text, or its start."""

    parts: tuple[str, ...]
    is_prefix: bool

    @staticmethod
    def of_query_word(word: Word) -> "WordParts":
        text = in_lower_case(word.text)
        if word.is_prefix:
            return WordParts((_as_indexed(text),), True)
        return WordParts(tuple(_as_indexed(chunk) for chunk in word_rules.split_words(text)), False)

    def match(self, line_word: str, part: str) -> bool:
        """Return whether a word of a line is this part, or starts with it."""
        indexed = _as_indexed(line_word)
        return indexed.startswith(part) if self.is_prefix else indexed == part


def decode_text(data: bytes) -> str:
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

    The texts are given as `in_lower_case(decode_text(data))`.
    """

    def __init__(self, query: Query) -> None:
        self._words: list[tuple[WordParts, bool]] = []
        self._phrases: list[tuple[tuple[str, ...], bool]] = []
        for clause in query.texts:
            if isinstance(clause, Word):
                self._words.append((WordParts.of_query_word(clause), clause.negated))
            elif isinstance(clause, Phrase):
                pieces = tuple(in_lower_case(piece) for piece in clause.pieces)
                self._phrases.append((pieces, clause.negated))

    @property
    def has_words_or_phrases(self) -> bool:
        return bool(self._words or self._phrases)

    def matches(self, text: str) -> bool:
        """Return whether a text has all words and phrases of the query, and no negated one."""
        for pieces, negated in self._phrases:
            if _has_phrase(text, pieces) is negated:
                return False
        for word_parts, negated in self._words:
            has_word = all(_has_word(text, word_parts, part) for part in word_parts.parts)
            if has_word is negated:
                return False
        return True

    def spans(self, line: str) -> list[Span]:
        """Return which parts of a line in lower case match, in order, without overlaps."""
        spans: list[Span] = []
        for pieces, negated in self._phrases:
            if not negated:
                spans += _phrase_spans(line, pieces)
        for word_parts, negated in self._words:
            if not negated:
                for part in word_parts.parts:
                    spans += _word_spans(line, word_parts, part)
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


def list_expressions(query: Query) -> list[Expression]:
    return [clause for clause in query.texts if isinstance(clause, Expression)]


def _as_indexed(word: str) -> str:
    """Return the start of a word, up to the length that the index stores."""
    return word[: word_rules.LONGEST_WORD]


def _has_phrase(text: str, pieces: Sequence[str]) -> bool:
    if not all(piece in text for piece in pieces):
        return False
    if len(pieces) == 1:
        return True
    # The longest piece is in the fewest lines.
    longest = max(pieces, key=len)
    return any(_piece_starts(line, pieces) for line in _lines_with(text, longest))


def _piece_starts(line: str, pieces: Sequence[str]) -> list[int]:
    """Return where each piece of a phrase starts in a line; none if one is missing.

    Each piece starts after the end of the previous one.
    """
    starts = []
    position = 0
    for piece in pieces:
        start = line.find(piece, position)
        if start < 0:
            return []
        starts.append(start)
        position = start + len(piece)
    return starts


def _phrase_spans(line: str, pieces: Sequence[str]) -> Iterator[Span]:
    """Yield the pieces of a phrase in a line, for each occurrence of the phrase."""
    position = 0
    while starts := _piece_starts(line[position:], pieces):
        for start_in_rest, piece in zip(starts, pieces, strict=True):
            start = position + start_in_rest
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


def _has_word(text: str, word_parts: WordParts, part: str) -> bool:
    # Splitting a line into words takes longer than finding the few lines that may have one.
    return any(_line_has_word(line, word_parts, part) for line in _lines_with(text, part))


def _line_has_word(line: str, word_parts: WordParts, part: str) -> bool:
    return any(word_parts.match(word, part) for word in word_rules.words_in(line))


def _word_spans(line: str, word_parts: WordParts, part: str) -> Iterator[Span]:
    """Yield where a line has a word."""
    if part not in line:
        return
    matching_words = {word for word in word_rules.words_in(line) if word_parts.match(word, part)}
    # A word is not marked within another one: "error" is no part of "errors".
    for word in matching_words:
        for match in re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", line):
            yield match.span()
