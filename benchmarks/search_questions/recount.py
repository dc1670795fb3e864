"""Answer a question without an index, from the texts in memory."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence, Set
from datetime import datetime
from functools import lru_cache

from apps.archive.domain.search.words import LONGEST_WORD, split_words, words_in
from apps.search.domain.engine.terms import required_words
from apps.search.domain.query.clauses import (
    Expression,
    Field,
    FieldValue,
    Phrase,
    Query,
    TextClause,
    Word,
    parse_moment,
)
from benchmarks.search_questions.world import Text, in_lower_case

_VALUES: dict[Field, Callable[[Text], str]] = {
    Field.EXPERIMENT: lambda text: text.experiment,
    Field.STATE: lambda text: text.state,
    Field.STAGE: lambda text: text.stage,
    Field.HOST: lambda text: text.host,
    Field.SITE: lambda text: text.site,
    Field.IN: lambda text: text.order[1],
}

#: Shorter starts of words are taken for those of all texts.
SHORTEST_START = 3


class Recount:
    """All texts, and the words of each."""

    def __init__(self, texts: Sequence[Text], *, at: datetime) -> None:
        self.texts = texts
        self._at = at
        self._with_value: dict[tuple[Field, str], set[int]] = {}
        self._places: dict[str, list[int]] = {}
        for place, text in enumerate(texts):
            for field, value_of in _VALUES.items():
                self._with_value.setdefault((field, value_of(text)), set()).add(place)
            for word in _words_of(text.lowered):
                self._places.setdefault(word, []).append(place)
        self._words = sorted(self._places)

    def expected(self, query: Query, experiments: Iterable[str]) -> list[Text]:
        """Return the texts that fulfil the query, newest first, of these experiments."""
        places = self._in_scope(query, experiments)
        # Expressions take longest, so they come last.
        for clause in sorted(query.texts, key=lambda clause: isinstance(clause, Expression)):
            matching = self._matching(clause, places)
            places = places - matching if clause.negated else places & matching
        return [self.texts[place] for place in sorted(places)]

    def candidates(self, query: Query, *, few: int) -> int:
        """Return about how many texts have the words that an engine looks up for a query.

        Starts of words come last, and short ones do not count: many words start so.
        """
        required = required_words(query)
        words = [self._places.get(row.word, []) for row in required if not row.is_prefix]
        places: Set[int] | None = None
        for word_places in sorted(words, key=len):
            places = set(word_places) if places is None else places.intersection(word_places)
            if len(places) <= few:
                return len(places)
        for row in required:
            if row.is_prefix and len(row.word) >= SHORTEST_START:
                with_start = self._with_start(Word(row.word, is_prefix=True))
                places = with_start if places is None else places & with_start
        return len(self.texts) if places is None else len(places)

    def _in_scope(self, query: Query, experiments: Iterable[str]) -> set[int]:
        """Return which texts are of these experiments and fulfil the fields of the query."""
        places = self._with_any(Field.EXPERIMENT, experiments)
        for field in _VALUES:
            clauses = query.of(field)
            if named := [clause.value for clause in clauses if not clause.negated]:
                places &= self._with_any(field, named)
            places -= self._with_any(field, [row.value for row in clauses if row.negated])
        for field in (Field.SINCE, Field.UNTIL):
            for clause in query.of(field):
                places = self._in_period(places, clause)
        return places

    def _with_any(self, field: Field, values: Iterable[str]) -> set[int]:
        return set().union(*(self._with_value.get((field, value), set()) for value in values))

    def _in_period(self, places: set[int], clause: FieldValue) -> set[int]:
        time = parse_moment(clause.value, at=self._at)
        kept = set()
        for place in places:
            is_since = self.texts[place].order[0] >= time
            if is_since is (clause.field is Field.SINCE):
                kept.add(place)
        return kept

    def _matching(self, clause: TextClause, places: set[int]) -> Set[int]:
        """Return which of the texts have what a clause asks for, or with a minus must not have."""
        if isinstance(clause, Word):
            return self._with_word(clause)
        if isinstance(clause, Phrase):
            pieces = [in_lower_case(piece) for piece in clause.pieces]
            pattern = re.compile(".*".join(map(re.escape, pieces)))
            matching = set()
            for place in places:
                lowered = self.texts[place].lowered
                if pieces[0] not in lowered:
                    continue
                # In one line, and one piece behind the other.
                if len(pieces) == 1 or pattern.search(lowered):
                    matching.add(place)
            return matching
        expression = re.compile(clause.pattern.encode(), re.IGNORECASE | re.MULTILINE)
        return {place for place in places if expression.search(self.texts[place].data)}

    def _with_word(self, word: Word) -> Set[int]:
        if word.is_prefix:
            return self._with_start(word)
        texts_by_chunk = []
        for chunk in split_words(in_lower_case(word.text)):
            texts_by_chunk.append(set(self._places.get(chunk[:LONGEST_WORD], ())))
        return set.intersection(*texts_by_chunk)

    @lru_cache(maxsize=8)  # noqa: B019  there is one recount
    def _with_start(self, word: Word) -> frozenset[int]:
        start = in_lower_case(word.text)[:LONGEST_WORD]
        places: set[int] = set()
        for index in range(bisect_left(self._words, start), len(self._words)):
            if not self._words[index].startswith(start):
                break
            places.update(self._places[self._words[index]])
        return frozenset(places)


def _words_of(lowered: str) -> set[str]:
    words: set[str] = set()
    for line in lowered.split("\n"):
        words |= {word[:LONGEST_WORD] for word in words_in(line)}
    return words
