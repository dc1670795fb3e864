"""The page and the Atom feed of the search in logs and scripts."""

import re
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import urlencode, urlsplit

from django.conf import settings
from django.urls import reverse
from django.utils.html import escape

from apps.accounts.models import User
from apps.clusters.schedulers.base import JobState
from apps.core.domain.hidden_characters import mark_hidden
from apps.jobs.models import Job
from apps.notifications.domain.atom_feeds import SIZE as FEED_SIZE
from apps.notifications.domain.atom_feeds import AtomFeed
from apps.portal.pages.search import jobs_with_id
from apps.search.domain.engine.base import (
    Cursor,
    Hits,
    SearchRefused,
    SearchScope,
    SearchUnavailable,
)
from apps.search.domain.engine.chosen import engine_in_use
from apps.search.domain.gaps import not_searched
from apps.search.domain.query.clauses import Query, QueryError, Source
from apps.search.domain.query.parser import parse
from apps.search.domain.results import FacetValue, SearchResult, facets_of, results_of

#: Results on a page, and hits that the facets count.
SIZE = 20
COUNTED = 100
#: What may be the ID of a job of any scheduler: one word with a digit.
_JOB_ID = re.compile(r"(?=\S*\d)[\w.\[\]@+-]{1,64}", re.ASCII)


@dataclass(frozen=True)
class FacetLink:
    """A value of a field with its name and number of hits; `query` narrows down to it.

    If the search has it already, `on`, `query` is without it.
    """

    name: str
    count: int
    query: str
    on: bool


@dataclass(frozen=True)
class TextSearchPage:
    """Hits with their lines, what else they have in common, and what was not searched.

    `jobs` have the ID that the text is, or are tasks of its array, all of which `jobs_url` lists.
    `counted` is the number of newest hits that the facets count, from this page on, and
    `counted_all` whether these are all. `has_scripts` if they are not of logs alone.
    """

    text: str
    problem: str = ""
    jobs: list[Job] = field(default_factory=list)
    jobs_url: str = ""
    results: list[SearchResult] = field(default_factory=list)
    facets: dict[str, list[FacetLink]] = field(default_factory=dict)
    counted: int = 0
    counted_all: bool = True
    has_scripts: bool = False
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
    jobs: list[Job] = []
    jobs_url = ""
    if cursor is None and _JOB_ID.fullmatch(text):
        jobs, jobs_url = jobs_with_id(text, user)
    try:
        query = parse(text)
        hits = engine_in_use().search(query, SearchScope(user, at), after=cursor, size=COUNTED)
    except (QueryError, SearchRefused, SearchUnavailable) as error:
        return TextSearchPage(text, problem=str(error), jobs=jobs, jobs_url=jobs_url)
    shown = hits.rows[:SIZE]
    next_place = hits.after
    if len(hits.rows) > SIZE:
        next_place = Cursor.after(shown[-1])
    stopped = hits.stopped and len(hits.rows) <= SIZE
    return TextSearchPage(
        text,
        jobs=jobs,
        jobs_url=jobs_url,
        results=results_of(shown, query, user),
        facets=_facet_links(hits, query, user),
        counted=len(hits.rows),
        counted_all=hits.after is None and cursor is None,
        has_scripts=any(hit.source is not Source.LOG for hit in hits.rows),
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
    return FacetLink(value.name, value.count, link, has_value)


def search_feed(*, text: str, feed_path: str, user: User, at: datetime) -> tuple[bytes, datetime]:
    """Search, and return the newest hits as a feed with the time of the newest.

    Raises `QueryError`, `SearchRefused`, `SearchUnavailable`. A hit has the same ID in the feeds of
    all searches.
    """
    query = parse(text.strip())
    hits = engine_in_use().search(query, SearchScope(user, at), size=FEED_SIZE)
    path = f"{reverse('portal:text-search')}?{urlencode({'q': text.strip()})}"
    host = urlsplit(settings.PORTAL_URL).hostname
    # Without a time, so that the same hits make the same feed.
    is_partial = hits.stopped and len(hits.rows) < FEED_SIZE
    feed = AtomFeed(
        title=mark_hidden(f"opsportal: search {text.strip()}"),
        link=settings.PORTAL_URL + path,
        description="There was no time to search everything." if is_partial else "",
        feed_url=settings.PORTAL_URL + feed_path,
        feed_guid=f"tag:{host},2026:{path}",
    )
    for result in results_of(hits.rows, query, user):
        hit = result.hit
        feed.add_item(
            title=mark_hidden(_title(result)),
            link=settings.PORTAL_URL + _path_of(result),
            description=_lines_as_html(result),
            unique_id=f"tag:{host},2026:search/{hit.source}/{hit.key}",
            pubdate=hit.at,
            updateddate=hit.at,
        )
    return feed.writeString("utf-8").encode(), feed.latest_post_date()


def _title(result: SearchResult) -> str:
    """Return what the hit is: `log of job 8461311_2, failed: NOVA-0003 reco`."""
    row = result.row
    title = f"{result.hit.source} of job {row.job_id} on {row.cluster.name}"
    if row.state:
        title += f", {JobState(row.state).text}"
    about = " ".join(part for part in (row.request_key, row.stage) if part)
    return f"{title}: {about}" if about else title


def _path_of(result: SearchResult) -> str:
    """Return the path of the first matching line of a log, or of the page of a script."""
    if result.archived is not None:
        return reverse("archive:job", args=[result.archived.pk])
    path = reverse("diagnosis:log", args=[result.row.pk])
    if not result.lines:
        return path
    line = result.lines[0]
    return f"{path}?{urlencode({'stream': line.stream, 'at': line.offset})}#b{line.offset}"


def _lines_as_html(result: SearchResult) -> str:
    """Return the matching lines; feed readers show a summary as HTML."""
    lines = []
    for line in result.lines:
        lines.append(escape(mark_hidden(line.text)))
    return "<pre>" + "\n".join(lines) + "</pre>" if lines else ""
