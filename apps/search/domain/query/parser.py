"""Parse what a user types into the search box. Knows no Django and no database."""

import re
from datetime import UTC, datetime

from apps.archive.domain.search import words
from apps.clusters.schedulers.base import JobState
from apps.search.domain.query.clauses import (
    ONCE,
    Clause,
    Expression,
    Field,
    FieldValue,
    Phrase,
    Query,
    QueryError,
    Source,
    Word,
    parse_moment,
)

LONGEST_QUERY = 1_000
MOST_CLAUSES = 30
#: All failed states, as a value of `state`, beside the states themselves.
ANY_FAILURE = "any_failure"
_SHOWN = 40

_QUOTED = re.compile(r'"((?:\\.|[^"\\])*)"(?=\s|$)', re.DOTALL)
# An unescaped slash must end the piece, or it is a path: /cvmfs/nova/setup.sh
_BETWEEN_SLASHES = re.compile(r"/((?:\\.|[^/\\])*)/(?=\s|$)", re.DOTALL)
# Not std::bad_alloc and not https://…
_NAMED = re.compile(r"([a-z_]+):(?![:/])")
_PIECE = re.compile(r"\S+")
_MAY_START = re.compile(r"-{0,2}\w[\w.+/-]*")


def parse(text: str) -> Query:
    """Return the query that a text means. Raises `QueryError`."""
    if len(text) > LONGEST_QUERY:
        raise QueryError(f"The search is longer than {LONGEST_QUERY:,} characters. Shorten it.")
    if "\0" in text:
        raise QueryError("The search has a NUL character. Remove it.")
    clauses: list[Clause] = []
    position = 0
    while (match := _PIECE.search(text, position)) is not None:
        if len(clauses) == MOST_CLAUSES:
            raise QueryError(f"The search has more than {MOST_CLAUSES} parts. Remove some.")
        clause, position = _clause(text, match.start())
        clauses.append(clause)
    query = Query(tuple(clauses))
    for field in ONCE:
        if len(query.of(field)) > 1:
            raise QueryError(f"{field}: occurs twice. Keep one of them.")
    return query


def _clause(text: str, start: int) -> tuple[Clause, int]:
    """Return the clause that begins at a position, and the position of its end."""
    negated = text[start] == "-"
    first = start + negated
    letter = text[first : first + 1]
    if letter == '"':
        phrase, end = _quoted(text, first)
        return _phrase(phrase, negated), end
    if letter == "/" and (match := _BETWEEN_SLASHES.match(text, first)):
        return _expression(match[1], negated), match.end()
    if match := _NAMED.match(text, first):
        return _field(text, match, negated)
    piece = _piece_at(text, start)
    return _word(piece), start + len(piece)


def _piece_at(text: str, start: int) -> str:
    """Return the text from a position to the next blank; "" at a blank or at the end."""
    match = _PIECE.match(text, start)
    return match[0] if match else ""


def _quoted(text: str, start: int) -> tuple[str, int]:
    r"""Return what stands between the quotes at a position, with its `\`, and their end."""
    match = _QUOTED.match(text, start)
    if match is None:
        raise QueryError(
            f"{_shown(text[start:])}: the closing quote is missing, or no blank follows it. "
            'Write \\" for a quote in a phrase.'
        )
    return match[1], match.end()


def _phrase(raw: str, negated: bool) -> Phrase:
    pieces = [""]
    for part in re.findall(r"\\.|[^\\]", raw, re.DOTALL):
        if part == "*":
            pieces.append("")
        else:
            pieces[-1] += part[1] if part[0] == "\\" and part[1] in '"\\*' else part
    kept = tuple(filter(None, pieces))
    if not any(piece.strip() for piece in kept):
        raise QueryError(f'"{raw}": the phrase is empty.')
    if any("\n" in piece for piece in kept):
        raise QueryError(f"{_shown(raw)}: a phrase is a part of one line. Remove the line break.")
    return Phrase(kept, negated)


def _expression(raw: str, negated: bool) -> Expression:
    if not raw:
        raise QueryError("//: the regular expression is empty.")
    if "\n" in raw:
        raise QueryError(f"/{_shown(raw)}/: an expression matches a part of one line.")
    return Expression(re.sub(r"(?s)\\.", _without_escape, raw), negated)


def _without_escape(match: re.Match[str]) -> str:
    return "/" if match[0] == r"\/" else match[0]


def _field(text: str, named: re.Match[str], negated: bool) -> tuple[FieldValue, int]:
    """Return the condition whose name and colon were matched, and the position of its end."""
    name = named[1]
    start = named.end()
    if text[start : start + 1] == '"':
        raw, end = _quoted(text, start)
        value = re.sub(r'\\(["\\])', r"\1", raw)
    else:
        value = _piece_at(text, start)
        end = start + len(value)
    whole = f"{name}:{value}"
    if name not in set(Field):
        raise QueryError(
            f"{_shown(whole)}: there is no field “{name}”. Use one of {', '.join(Field)}, "
            "or put it in quotes to search for this text."
        )
    if not value.strip():
        raise QueryError(f"{name}: has no value.")
    field = Field(name)
    if negated and field in ONCE:
        raise QueryError(f"-{_shown(whole)}: a time cannot be excluded. Use since: and until:.")
    try:
        _check(field, value)
    except QueryError as error:
        raise QueryError(f"{_shown(whole)}: {error}") from None
    return FieldValue(field, value, negated), end


def _check(field: Field, value: str) -> None:
    """Raise `QueryError` if a field cannot have this value."""
    if field is Field.IN and value not in set(Source):
        raise QueryError(f"use one of {', '.join(Source)}.")
    if field is Field.STATE and value not in {ANY_FAILURE, *JobState}:
        raise QueryError(f"use one of {', '.join([ANY_FAILURE, *JobState])}.")
    if field is Field.EXIT and not re.fullmatch(r"-?[0-9]{1,9}", value):
        raise QueryError("an exit code is a whole number, such as 65.")
    if field in ONCE:
        parse_moment(value, at=datetime(2026, 1, 1, tzinfo=UTC))


def _word(piece: str) -> Word:
    """Return the word that a piece without blanks means."""
    # A word may begin with two dashes, as --mem=4G, so the first of three excludes it.
    negated = re.match(r"-(?!-)|---", piece) is not None
    text = piece[1:] if negated else piece
    if text.startswith("/"):
        # No word has a slash before it, and without one a query is the same in any order.
        text = text.lstrip('/-"')
        if _NAMED.match(text):
            raise QueryError(f"{_shown(piece)}: put it in quotes to search for this text.")
    is_prefix = text.endswith("*") and len(text) > 1
    if is_prefix:
        text = text[:-1]
        if not _MAY_START.fullmatch(text):
            raise QueryError(
                f"{_shown(piece)}: only a single word may end with *. Put a phrase in quotes."
            )
    if not list(words.split_words(text)):
        raise QueryError(
            f"{_shown(piece)}: has no letters or digits. Put it in quotes to search for this text."
        )
    return Word(text, is_prefix, negated)


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
