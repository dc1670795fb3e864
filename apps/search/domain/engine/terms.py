"""Which words a text must have in the index so that it can fulfil a query."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from apps.archive.domain.search import words as word_rules
from apps.search.domain.query.clauses import Phrase, Query, Word
from apps.search.domain.query.matcher import TWO_LOWER_CASES, WordParts, in_lower_case

#: The index has these letters as `str.lower` chose them, so none of them is looked up.
_UNCERTAIN = re.compile(f"[{''.join([*TWO_LOWER_CASES, *TWO_LOWER_CASES.values()])}]")


@dataclass(frozen=True, slots=True)
class Required:
    """A word of the index, or with `is_prefix` any word that starts so."""

    word: str
    is_prefix: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "word", self.word[: word_rules.LONGEST_WORD])


def required_words(query: Query) -> list[Required]:
    """Return words which every text that fulfils the query has.

    Texts that have all may still not fulfil it.
    """
    terms: list[Required] = []
    for clause in query.texts:
        if clause.negated:
            continue
        if isinstance(clause, Word):
            word_parts = WordParts.of_query_word(clause)
            terms += [Required(part, word_parts.is_prefix) for part in word_parts.parts]
        elif isinstance(clause, Phrase):
            for piece in clause.pieces:
                terms += _terms_within(in_lower_case(piece))
    certain = map(_certain_part, terms)
    return list(dict.fromkeys(term for term in certain if term.word))


def _certain_part(required: Required) -> Required:
    """Return what is required up to the first letter that has two lower cases."""
    start, *rest = _UNCERTAIN.split(required.word, maxsplit=1)
    return Required(start, is_prefix=True) if rest else required


def _terms_within(piece: str) -> list[Required]:
    """Return what is required of the whole words in a piece of a line.

    No word contains a blank. What stands before the first blank may be the end of a longer word,
    and what stands after the last one the start of one.
    """
    chunks = piece.split()
    first = 0 if piece[0].isspace() else 1
    last = len(chunks) if piece[-1].isspace() else len(chunks) - 1
    terms = []
    for chunk in chunks[first:last]:
        terms += [Required(word) for word in word_rules.split_words(chunk)]
    if first <= last < len(chunks) and (start := word_rules.start_of_word(chunks[last])):
        terms.append(Required(start, is_prefix=True))
    return terms


def tsquery_terms(required: Iterable[Required]) -> list[str]:
    """Return the terms of a tsquery that a text with these words matches."""
    terms = []
    for term in required:
        quoted = word_rules.quote_lexeme(term.word)
        terms.append(f"{quoted}:*" if term.is_prefix else quoted)
    return terms
