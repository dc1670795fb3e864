"""The page of the search in logs and scripts."""

from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import urlencode

from apps.accounts.models import User
from apps.search.domain.engine.base import Cursor, Hits, Scope, SearchRefused
from apps.search.domain.engine.postgresql import ENGINE
from apps.search.domain.gaps import not_searched
from apps.search.domain.query.clauses import Query, QueryError
from apps.search.domain.query.parser import parse
from apps.search.domain.results import FacetValue, Result, facets_of, results_of

#: Results on a page, and hits that the facets count.
SIZE = 20
COUNTED = 200


@dataclass(frozen=True)
class FacetLink:
    """A value of a field with the number of hits that have it; `query` narrows down to it.

    If the search has it already, `on`, `query` is without it.
    """

    value: str
    count: int
    query: str
    on: bool


@dataclass(frozen=True)
class TextSearchPage:
    """Hits with their lines, what else they have in common, and what was not searched.

    `counted` is the number of newest hits that the facets count, and `counted_all` whether these
    are all.
    """

    text: str
    problem: str = ""
    results: list[Result] = field(default_factory=list)
    facets: dict[str, list[FacetLink]] = field(default_factory=dict)
    counted: int = 0
    counted_all: bool = True
    next_query: str = ""
    first_query: str = ""
    stopped_at: datetime | None = None
    gaps: list[str] = field(default_factory=list)


def text_search_page(*, text: str, after: str, user: User, at: datetime) -> TextSearchPage:
    """Search logs and scripts; an error of the search is on the page."""
    text = text.strip()
    if not text:
        return TextSearchPage(text)
    cursor = Cursor.of(after)
    try:
        query = parse(text)
        hits = ENGINE.search(query, Scope(user, at), after=cursor, size=COUNTED)
    except (QueryError, SearchRefused) as error:
        return TextSearchPage(text, problem=str(error))
    shown = hits.rows[:SIZE]
    next_place = hits.after
    if len(hits.rows) > SIZE:
        next_place = Cursor.after(shown[-1])
    stopped = hits.stopped and len(hits.rows) <= SIZE
    return TextSearchPage(
        text,
        results=results_of(shown, query, user),
        facets=_facet_links(hits, query, user),
        counted=len(hits.rows),
        counted_all=hits.after is None and cursor is None,
        next_query="?" + urlencode({"q": text, "after": str(next_place)}) if next_place else "",
        first_query="?" + urlencode({"q": text}) if cursor else "",
        stopped_at=hits.after.at if stopped and hits.after else None,
        gaps=not_searched(query),
    )


def _facet_links(hits: Hits, query: Query, user: User) -> dict[str, list[FacetLink]]:
    facets = {}
    for title, values in facets_of(hits.rows, user).items():
        if values:
            facets[title] = [_facet_link(value, query) for value in values]
    return facets


def _facet_link(value: FacetValue, query: Query) -> FacetLink:
    has_value = query.has(value.clause)
    if has_value:
        changed = query.without(value.clause)
    else:
        changed = query.with_clause(value.clause)
    link = "?" + urlencode({"q": str(changed)})
    return FacetLink(value.clause.value, value.count, link, has_value)
