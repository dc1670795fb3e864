"""Answer a question without an index, from the texts in memory."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from apps.archive.domain.search.words import LONGEST_WORD, chunks, words_in
from apps.search.domain.query.clauses import (
    Expression,
    Field,
    FieldValue,
    Phrase,
    Query,
    TextClause,
    Word,
    moment,
)
from benchmarks.search_questions.world import Text

_VALUES: dict[Field, Callable[[Text], str]] = {
    Field.EXPERIMENT: lambda text: text.experiment,
    Field.STATE: lambda text: text.state,
    Field.STAGE: lambda text: text.stage,
    Field.HOST: lambda text: text.host,
    Field.SITE: lambda text: text.site,
}


class Recount:
    """All texts, and the words of each."""

    def __init__(self, texts: Sequence[Text], *, at: datetime) -> None:
        self.texts = texts
        self._at = at
        self._places: dict[str, list[int]] = {}
        for place, text in enumerate(texts):
            for word in _words_of(text.lowered):
                self._places.setdefault(word, []).append(place)
        self._words = sorted(self._places)

    def expected(self, query: Query, experiments: Iterable[str]) -> list[Text]:
        """Return the texts that fulfil the query, newest first, of these experiments."""
        places = self._in_scope(query, frozenset(experiments))
        # Expressions take longest, so they come last.
        for clause in sorted(query.texts, key=lambda clause: isinstance(clause, Expression)):
            matching = self._matching(clause, places)
            places = places - matching if clause.negated else places & matching
        return [self.texts[place] for place in sorted(places)]

    def _in_scope(self, query: Query, experiments: frozenset[str]) -> set[int]:
        places = set()
        for place, text in enumerate(self.texts):
            if text.experiment in experiments and self._has_fields(text, query):
                places.add(place)
        return places

    def _has_fields(self, text: Text, query: Query) -> bool:
        at, source, _ = text.order
        if source not in query.sources:
            return False
        for clause in query.of(Field.SINCE):
            if at < moment(clause.value, at=self._at):
                return False
        for clause in query.of(Field.UNTIL):
            if at >= moment(clause.value, at=self._at):
                return False
        return all(_has_value(text, query.of(field), field) for field in _VALUES)

    def _matching(self, clause: TextClause, places: set[int]) -> set[int]:
        """Return which of the texts have what a clause asks for, or with a minus must not have."""
        if isinstance(clause, Word):
            return self._with_start(clause) if clause.starts else self._with_word(clause)
        if isinstance(clause, Phrase):
            pieces = [piece.lower() for piece in clause.pieces]
            pattern = re.compile(".*".join(map(re.escape, pieces)))
            matching = set()
            for place in places:
                lowered = self.texts[place].lowered
                # In one line, and one piece behind the other.
                if all(piece in lowered for piece in pieces) and pattern.search(lowered):
                    matching.add(place)
            return matching
        expression = re.compile(clause.pattern.encode(), re.IGNORECASE | re.MULTILINE)
        return {place for place in places if expression.search(self.texts[place].data)}

    def _with_word(self, word: Word) -> set[int]:
        found = []
        for chunk in chunks(word.text):
            found.append(set(self._places.get(chunk[:LONGEST_WORD], ())))
        return set.intersection(*found)

    def _with_start(self, word: Word) -> set[int]:
        start = word.text.lower()
        places: set[int] = set()
        for index in range(bisect_left(self._words, start), len(self._words)):
            if not self._words[index].startswith(start):
                break
            places.update(self._places[self._words[index]])
        return places


def _words_of(lowered: str) -> set[str]:
    words: set[str] = set()
    for line in lowered.split("\n"):
        words |= {word[:LONGEST_WORD] for word in words_in(line)}
    return words


def _has_value(text: Text, clauses: Sequence[FieldValue], field: Field) -> bool:
    value = _VALUES[field](text)
    named = [clause.value for clause in clauses if not clause.negated]
    excluded = [clause.value for clause in clauses if clause.negated]
    return value not in excluded and (not named or value in named)
