"""Texts that may match a query, by time: where a search starts, and where it continues."""

from dataclasses import dataclass

from django.db.models import Q

from apps.search.domain.engine.base import Cursor, SearchHit, SearchScope
from apps.search.domain.query.clauses import Field, Query, Source, parse_moment


@dataclass(frozen=True, slots=True)
class HitCandidate:
    """A text that may match the query; `blob` is the content of a script or an environment.

    A text that is `excluded` was examined and does not match: the search continues after it.
    """

    hit: SearchHit
    blob: int | None = None
    excluded: bool = False


def in_period(query: Query, scope: SearchScope, column: str) -> Q:
    """Return the condition of `since:` and `until:`."""
    condition = Q()
    for clause in query.of(Field.SINCE):
        condition &= Q(**{f"{column}__gte": parse_moment(clause.value, at=scope.at)})
    for clause in query.of(Field.UNTIL):
        condition &= Q(**{f"{column}__lt": parse_moment(clause.value, at=scope.at)})
    return condition


def comes_after(cursor: Cursor, source: Source, time_column: str, key_column: str) -> Q:
    """Return the condition for the rows of a source that come after a cursor."""
    if source.value < cursor.source.value:
        return Q(**{f"{time_column}__lte": cursor.at})
    if source.value > cursor.source.value:
        return Q(**{f"{time_column}__lt": cursor.at})
    # The first condition is redundant, but lets PostgreSQL use an index.
    older = Q(**{f"{time_column}__lt": cursor.at})
    same = Q(**{time_column: cursor.at, f"{key_column}__lt": cursor.key})
    return Q(**{f"{time_column}__lte": cursor.at}) & (older | same)
