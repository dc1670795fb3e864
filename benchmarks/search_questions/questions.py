"""Questions made of pieces of the texts, each from its number and the seed alone."""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from apps.archive.domain.search.words import words_in
from apps.search.domain.query.clauses import (
    Expression,
    Field,
    FieldValue,
    Phrase,
    Query,
    TextClause,
    Word,
)
from benchmarks.search_questions.recount import Recount
from benchmarks.search_questions.world import Text

EVERYTHING = ("NOVA", "DUNE", "")
#: Kinds of questions, and how many of a thousand are of each.
KINDS = {
    "word": 150,
    "words": 150,
    "start of a word": 80,
    "phrase": 253,
    "phrase within a word": 3,
    "phrase with *": 120,
    "expression and word": 100,
    "expression in some days": 15,
    "expression alone": 1,
    "without": 99,
    "absent": 30,
}
#: For these, all texts are read, or all of some days.
READ_ALL = ("phrase within a word", "expression in some days", "expression alone")
#: Of other questions for which an engine reads more texts than this, so many of a thousand are asked.
SHARES = ((2_000, 3), (400, 25), (100, 300), (-1, 1_000))
#: A word as it can be typed, and how one may begin that ends with a star.
_TYPED_WORD = re.compile(r"(--)?\w[\w.+/=-]*")
_START = re.compile(r"(--)?\w[\w.+/-]*")


@dataclass(frozen=True)
class Question:
    """What is asked, by a user who sees these experiments, and the hits by the recount."""

    number: int
    kind: str
    query: Query
    experiments: tuple[str, ...]
    expected: list[Text]


class Questions:
    """Makes questions of the texts."""

    def __init__(self, recount: Recount, *, seed: int) -> None:
        self._recount = recount
        self._seed = seed

    def question(self, number: int) -> Question:
        """Return the question with this number."""
        chance = random.Random(f"{self._seed}-{number}")
        kind = chance.choices(list(KINDS), list(KINDS.values()))[0]
        experiments = EVERYTHING if number % 10 else ("NOVA",)
        while True:
            query = self._query(kind, chance)
            if query is None:
                continue
            candidates = self._recount.candidates(query, few=SHARES[-2][0])
            share = next(share for most, share in SHARES if candidates > most)
            if kind in READ_ALL or chance.randrange(1_000) < share:
                expected = self._recount.expected(query, experiments)
                return Question(number, kind, query, experiments, expected)

    def _query(self, kind: str, chance: random.Random) -> Query | None:
        """Return a question about one of the texts; None if its lines are of no use for it."""
        text = chance.choice(self._recount.texts)
        clauses = _CLAUSES[kind](text, chance)
        if clauses is None:
            return None
        fields: list[FieldValue] = []
        if kind == "expression in some days":
            fields = list(_days(text, chance))
        elif chance.random() < 0.25:
            fields = list(_fields(text, chance))
        return Query((*clauses, *fields))


def _line(text: Text, chance: random.Random) -> str:
    """Return a line of the text, without bytes that are no UTF-8."""
    lines = [line for line in text.data.split(b"\n") if line.strip()]
    return chance.choice(lines).decode("utf-8", "ignore").rstrip("\r")


def _word(text: Text, chance: random.Random) -> tuple[TextClause, ...] | None:
    words = sorted(filter(_TYPED_WORD.fullmatch, words_in(_line(text, chance))))
    return (Word(chance.choice(words)),) if words else None


def _words(text: Text, chance: random.Random) -> tuple[TextClause, ...] | None:
    clauses: tuple[TextClause, ...] = ()
    for _ in range(chance.randint(2, 3)):
        clauses += _word(text, chance) or ()
    return clauses or None


def _word_start(text: Text, chance: random.Random) -> tuple[TextClause, ...] | None:
    words = sorted(filter(_START.fullmatch, words_in(_line(text, chance))))
    if not words:
        return None
    word = chance.choice(words)
    return (Word(word[: chance.randint(min(3, len(word)), len(word))], is_prefix=True),)


def _piece(line: str, chance: random.Random, *, shortest: int, longest: int) -> str:
    length = chance.randint(shortest, longest)
    start = chance.randrange(max(1, len(line) - length))
    return line[start : start + length]


def _phrase(text: Text, chance: random.Random) -> tuple[TextClause, ...] | None:
    piece = _piece(_line(text, chance), chance, shortest=6, longest=60)
    # With less there is no whole word, and all texts are read.
    return (Phrase((piece,)),) if len(piece.split()) > 2 else None


def _phrase_within_word(text: Text, chance: random.Random) -> tuple[TextClause, ...] | None:
    piece = _piece(_line(text, chance), chance, shortest=5, longest=14)
    return (Phrase((piece,)),) if piece.strip() and len(piece.split()) == 1 else None


def _phrase_with_star(text: Text, chance: random.Random) -> tuple[TextClause, ...] | None:
    first = _phrase(text, chance)
    if first is None:
        return None
    (piece,) = first[0].pieces
    cut = sorted(
        chance.sample(range(1, len(piece)), 2 * chance.randint(1, min(2, len(piece) // 4)))
    )
    pieces = [piece[: cut[0]]]
    for start, end in zip(cut[1::2], [*cut[2::2], len(piece)], strict=True):
        pieces.append(piece[start:end])
    if not any(" " in row.strip() for row in pieces):
        return None
    return (Phrase(tuple(pieces)),)


def _expression(text: Text, chance: random.Random) -> tuple[TextClause, ...] | None:
    piece = _piece(_line(text, chance), chance, shortest=4, longest=30)
    if not piece.isascii() or not piece.isprintable() or not piece.strip():
        return None
    pattern = re.escape(piece).replace("/", r"/")
    kind = chance.randrange(6)
    if kind == 0:
        pattern = re.sub(r"\d+", r"\\d+", pattern)
    elif kind == 1:
        pattern = re.sub(r"[a-z]{2,}", "[a-z]+", pattern, count=1)
    elif kind == 2:
        pattern = rf"\b{pattern}\b"
    elif kind == 3:
        pattern = f"(?:{pattern}|{re.escape(piece[::-1])})"
    elif kind == 4:
        pattern = pattern + ".*" + re.escape(chance.choice("aeiou1"))
    return (Expression(pattern),)


def _expression_and_word(text: Text, chance: random.Random) -> tuple[TextClause, ...] | None:
    clauses = chance.choice([_word, _phrase])(text, chance)
    expression = _expression(text, chance)
    if clauses is None or expression is None:
        return None
    return _shuffled(clauses + expression, chance)


def _without(text: Text, chance: random.Random) -> tuple[TextClause, ...] | None:
    """Return a word or a phrase, and something that another text has and that is excluded."""
    clauses = chance.choice([_words, _phrase])(text, chance)
    makers = [_word, _word_start, _phrase, _phrase_within_word, _phrase_with_star, _expression]
    excluded = chance.choice(makers)(text, chance)
    if clauses is None or excluded is None:
        return None
    return _shuffled(clauses + tuple(_negated(clause) for clause in excluded), chance)


def _negated(clause: TextClause) -> TextClause:
    if isinstance(clause, Word):
        return Word(clause.text, clause.is_prefix, negated=True)
    if isinstance(clause, Phrase):
        return Phrase(clause.pieces, negated=True)
    return Expression(clause.pattern, negated=True)


def _absent(text: Text, chance: random.Random) -> tuple[TextClause, ...] | None:
    """Return a word or a phrase with two letters exchanged."""
    clauses = chance.choice([_word, _phrase])(text, chance)
    if clauses is None:
        return None
    clause = clauses[0]
    letters = list(clause.text if isinstance(clause, Word) else clause.pieces[0])
    if len(letters) < 3:
        return None
    place = chance.randrange(1, len(letters) - 1)
    letters[place], letters[place + 1] = letters[place + 1], letters[place]
    changed = "".join(letters)
    if isinstance(clause, Phrase):
        return (Phrase((changed,)),)
    return (Word(changed),) if _TYPED_WORD.fullmatch(changed) else None


def _shuffled(clauses: tuple[TextClause, ...], chance: random.Random) -> tuple[TextClause, ...]:
    return tuple(chance.sample(clauses, len(clauses)))


def _fields(text: Text, chance: random.Random) -> Iterator[FieldValue]:
    """Yield one or two conditions; most of them hold for the text."""
    values = {
        Field.EXPERIMENT: text.experiment,
        Field.STATE: text.state,
        Field.STAGE: text.stage,
        Field.HOST: text.host,
        Field.SITE: text.site,
        Field.IN: text.order[1],
        Field.SINCE: f"{text.order[0] - timedelta(days=chance.randrange(30)):%Y-%m-%d}",
        Field.UNTIL: f"{text.order[0] + timedelta(days=1):%Y-%m-%dT%H:%M}",
    }
    weights = [4, 4, 4, 1, 4, 2, 4, 4]
    chosen = dict.fromkeys(chance.choices(list(values), weights, k=chance.randint(1, 2)))
    for field in chosen:
        if values[field]:
            may_exclude = field not in (Field.SINCE, Field.UNTIL, Field.HOST)
            yield FieldValue(field, values[field], may_exclude and chance.random() < 0.2)


def _days(text: Text, chance: random.Random) -> Iterator[FieldValue]:
    """Yield a period of a few days around the text."""
    at = text.order[0]
    yield FieldValue(Field.SINCE, f"{at - timedelta(days=chance.randrange(1, 3)):%Y-%m-%d}")
    yield FieldValue(Field.UNTIL, f"{at + timedelta(days=1):%Y-%m-%d}")


_CLAUSES: dict[str, Callable[[Text, random.Random], Sequence[TextClause] | None]] = {
    "word": _word,
    "words": _words,
    "start of a word": _word_start,
    "phrase": _phrase,
    "phrase within a word": _phrase_within_word,
    "phrase with *": _phrase_with_star,
    "expression and word": _expression_and_word,
    "expression in some days": _expression,
    "expression alone": _expression,
    "without": _without,
    "absent": _absent,
}
