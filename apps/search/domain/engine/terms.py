"""Which words a text must have in the index so that it can fulfil a query."""

from apps.archive.domain.search import words as word_rules
from apps.search.domain.query.clauses import Phrase, Query, Word
from apps.search.domain.query.matching import Sought


def required_terms(query: Query) -> list[str]:
    """Return the terms of a tsquery which every text that fulfils the query matches.

    Texts that match all may still not fulfil it.
    """
    terms: list[str] = []
    for clause in query.texts:
        if clause.negated:
            continue
        if isinstance(clause, Word):
            sought = Sought.of(clause)
            terms += [_term(part, starts=sought.starts) for part in sought.parts]
        elif isinstance(clause, Phrase):
            for piece in clause.pieces:
                terms += _terms_within(piece.lower())
    return list(dict.fromkeys(terms))


def _terms_within(piece: str) -> list[str]:
    """Return terms for the whole words in a piece of a line.

    No word contains a blank. What stands before the first blank may be the end of a longer word,
    and what stands after the last one the start of one.
    """
    chunks = piece.split()
    first = 0 if piece[0].isspace() else 1
    last = len(chunks) if piece[-1].isspace() else len(chunks) - 1
    terms = []
    for chunk in chunks[first:last]:
        terms += [_term(word) for word in word_rules.chunks(chunk)]
    if first <= last < len(chunks) and (start := word_rules.start_of_word(chunks[last])):
        terms.append(_term(start, starts=True))
    return terms


def _term(word: str, *, starts: bool = False) -> str:
    quoted = word_rules.quoted(word[: word_rules.LONGEST_WORD])
    return f"{quoted}:*" if starts else quoted
