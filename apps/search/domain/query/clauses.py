"""The clauses of a search, and the query that they make. Knows no Django and no database."""

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

_RELATIVE = re.compile(r"(\d{1,5})(m|h|d|w)")
_UNITS = {
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
# A colon or a slash behind `name:` makes it a word: std::bad_alloc, https://…
_PLAIN_VALUE = re.compile(r'(?![:/])[^\s"\\]+')


class QueryError(ValueError):
    """A search cannot be understood; the message names the piece of it and what to do."""


class Source(StrEnum):
    """Where a text is: in the kept end of a job's logs, its script, or its environment."""

    LOG = "log"
    SCRIPT = "script"
    ENVIRONMENT = "environment"


class Field(StrEnum):
    """What a clause `field:value` may ask about a job."""

    IN = "in"
    HOST = "host"
    SITE = "site"
    USER = "user"
    REQUEST = "request"
    STAGE = "stage"
    RELEASE = "release"
    STATE = "state"
    VERDICT = "verdict"
    EXIT = "exit"
    EXPERIMENT = "experiment"
    CLUSTER = "cluster"
    SINCE = "since"
    UNTIL = "until"


#: These stand for themselves: once in a query, and never negated.
ONCE = frozenset({Field.SINCE, Field.UNTIL})


@dataclass(frozen=True, slots=True)
class Word:
    """A word of the text, or with `is_prefix` any word that starts so. Case is ignored."""

    text: str
    is_prefix: bool = False
    negated: bool = False

    def __str__(self) -> str:
        return _sign(self.negated) + self.text + ("*" if self.is_prefix else "")


@dataclass(frozen=True, slots=True)
class Phrase:
    """A part of a line, letter for letter, except that case is ignored.

    Between two pieces there may be anything: `"open /cvmfs/* failed"` has two.
    """

    pieces: tuple[str, ...]
    negated: bool = False

    def __str__(self) -> str:
        escaped = (re.sub(r'(["\\*])', r"\\\1", piece) for piece in self.pieces)
        return f'{_sign(self.negated)}"{"*".join(escaped)}"'


@dataclass(frozen=True, slots=True)
class Expression:
    """A regular expression of RE2 that matches a part of a line; `pattern` as RE2 gets it."""

    pattern: str
    negated: bool = False

    def __str__(self) -> str:
        return f"{_sign(self.negated)}/{escaped_pattern(self.pattern)}/"


@dataclass(frozen=True, slots=True)
class FieldValue:
    """A condition on the job; several of one field are alternatives."""

    field: Field
    value: str
    negated: bool = False

    def __str__(self) -> str:
        value = self.value
        if not _PLAIN_VALUE.fullmatch(value):
            value = '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'
        return f"{_sign(self.negated)}{self.field}:{value}"


TextClause = Word | Phrase | Expression
Clause = TextClause | FieldValue


@dataclass(frozen=True, slots=True)
class Query:
    """What a job must fulfil: all clauses, the texts among them in one text of the job."""

    clauses: tuple[Clause, ...] = ()

    def __str__(self) -> str:
        """Return the text from which `parse` makes the same query."""
        return " ".join(map(str, self.clauses))

    @property
    def texts(self) -> tuple[TextClause, ...]:
        """Return what the text must have, and must not have."""
        return tuple(clause for clause in self.clauses if not isinstance(clause, FieldValue))

    @property
    def fields(self) -> tuple[FieldValue, ...]:
        """Return the conditions on the job."""
        return tuple(clause for clause in self.clauses if isinstance(clause, FieldValue))

    @property
    def sources(self) -> tuple[Source, ...]:
        """Return where to search: logs and scripts, unless the query names other places."""
        named = {clause.value for clause in self.of(Field.IN) if not clause.negated}
        excluded = {clause.value for clause in self.of(Field.IN) if clause.negated}
        if not named:
            named = {Source.LOG, Source.SCRIPT}
        return tuple(source for source in Source if source in named - excluded)

    def of(self, field: Field) -> tuple[FieldValue, ...]:
        """Return the conditions on one field."""
        return tuple(clause for clause in self.fields if clause.field is field)

    def has(self, clause: Clause) -> bool:
        return clause in self.clauses

    def with_clause(self, clause: Clause) -> "Query":
        """Return the query with this clause at its end, unless it has it."""
        return self if self.has(clause) else replace(self, clauses=(*self.clauses, clause))

    def without(self, clause: Clause) -> "Query":
        """Return the query without this clause."""
        return replace(self, clauses=tuple(other for other in self.clauses if other != clause))


def parse_moment(value: str, *, at: datetime) -> datetime:
    """Return the time that a value of `since` or `until` names: `30d` before `at`, or a date.

    A date without an offset is in UTC. Raises `QueryError`.
    """
    if match := _RELATIVE.fullmatch(value):
        return at - int(match[1]) * _UNITS[match[2]]
    try:
        time = datetime.fromisoformat(value)
        # In UTC, which not every time at the ends of the calendar has.
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        raise QueryError(
            f"“{value}” is no time. Write 30d, 12h, 2026-11-17 or 2026-11-17T03:41."
        ) from None


def escaped_pattern(pattern: str) -> str:
    r"""Return a regular expression with each `/` as `\/`; one that is escaped stays."""
    return re.sub(r"(?s)\\.|/", lambda match: r"\/" if match[0] == "/" else match[0], pattern)


def _sign(negated: bool) -> str:
    return "-" if negated else ""
