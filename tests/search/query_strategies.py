"""Queries for property tests."""

from hypothesis import strategies as st

from apps.clusters.schedulers.base import JobState
from apps.search.domain.query.clauses import (
    ONCE,
    Clause,
    Expression,
    Field,
    FieldValue,
    Phrase,
    Query,
    Word,
)

_LETTERS = st.characters(codec="utf-8", exclude_characters="\0\n")
_NEGATED = st.booleans()
_WORDS = st.from_regex(r"(--)?[a-zé0-9_]{1,8}([./+-][a-z0-9]{1,5})?", fullmatch=True)
_PIECES = st.text(_LETTERS, min_size=1, max_size=8).filter(lambda text: not text.isspace())
_VALUES = st.text(_LETTERS, min_size=1, max_size=8).filter(lambda text: not text.isspace())
#: Patterns as RE2 gets them: no escaped slash, and no `\` at the end.
_PATTERNS = st.lists(
    st.sampled_from(["a", "é", "/", r"\d", r"\\", r"\.", " ", "(x|y)", "[/]", "+"]), min_size=1
).map("".join)


def _values_of(field: Field) -> st.SearchStrategy[str]:
    if field is Field.IN:
        return st.sampled_from(["log", "script", "environment"])
    if field is Field.STATE:
        return st.sampled_from(["any_failure", *JobState])
    if field is Field.EXIT:
        return st.integers(-200, 300).map(str)
    if field in ONCE:
        return st.sampled_from(["30d", "12h", "2w", "45m", "2026-11-17", "2026-11-17T03:41"])
    return _VALUES


@st.composite
def _field_values(draw: st.DrawFn) -> FieldValue:
    field = draw(st.sampled_from(Field))
    negated = field not in ONCE and draw(_NEGATED)
    return FieldValue(field, draw(_values_of(field)), negated)


CLAUSES: st.SearchStrategy[Clause] = st.one_of(
    st.builds(Word, _WORDS, is_prefix=_NEGATED, negated=_NEGATED),
    st.builds(Phrase, st.lists(_PIECES, min_size=1, max_size=3).map(tuple), negated=_NEGATED),
    st.builds(Expression, _PATTERNS, negated=_NEGATED),
    _field_values(),
)


def _no_time_twice(clauses: list[Clause]) -> Query:
    kept: list[Clause] = []
    named: set[Field] = set()
    for clause in clauses:
        if isinstance(clause, FieldValue) and clause.field in ONCE:
            if clause.field in named:
                continue
            named.add(clause.field)
        kept.append(clause)
    return Query(tuple(kept))


QUERIES = st.lists(CLAUSES, max_size=6).map(_no_time_twice)
