"""Scripts and environments that may fulfil a query, newest first. Both engines find them here."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime

from django.db.models import QuerySet

from apps.archive.domain.search import words as word_rules
from apps.archive.domain.search.word_search import newest_with_words
from apps.archive.domain.store.contents import DamagedContent, read_start
from apps.archive.models import ArchivedJob, Blob
from apps.search.domain.engine.base import Cursor, SearchHit, SearchScope
from apps.search.domain.engine.conditions import visible_archived_jobs, with_visible_environment
from apps.search.domain.engine.places import HitCandidate, comes_after, in_period
from apps.search.domain.engine.terms import required_words, tsquery_terms
from apps.search.domain.query.clauses import Query, Source

#: Archived jobs that are taken from the index of scripts at once.
SCRIPTS_AT_ONCE = 500


def newest_contents(
    source: Source, query: Query, scope: SearchScope, after: Cursor | None
) -> Iterator[HitCandidate]:
    """Yield archived jobs whose scripts or environments may fulfil the query."""
    rows = visible_archived_jobs(query, scope.user)
    rows = rows.filter(in_period(query, scope, "submitted_at"))
    terms: list[str] = []
    if source is Source.ENVIRONMENT:
        rows = with_visible_environment(rows, scope.user)
    else:
        terms = tsquery_terms(required_words(query))
    while True:
        part = rows
        if after is not None:
            part = rows.filter(comes_after(after, source, "submitted_at", "pk"))
        places = list(_newest_places(part, source, terms))
        for at, key, blob in places:
            yield HitCandidate(SearchHit(at, source, key), blob)
        if len(places) < SCRIPTS_AT_ONCE:
            return
        after = Cursor(places[-1][0], source, places[-1][1])


def _newest_places(
    archived_jobs: QuerySet[ArchivedJob], source: Source, terms: Sequence[str]
) -> Iterator[tuple[datetime, int, int]]:
    facts = archived_jobs.order_by("-submitted_at", "-pk").values_list(
        "submitted_at", "pk", source.value
    )
    if terms:
        yield from newest_with_words(facts, SCRIPTS_AT_ONCE, terms)
    else:
        yield from facts[:SCRIPTS_AT_ONCE]


def contents_of(keys: set[tuple[Source, int]]) -> dict[tuple[Source, int], bytes]:
    """Return the beginnings of scripts and environments, except damaged ones."""
    blobs = Blob.objects.in_bulk({blob for _, blob in keys})
    contents = {}
    for source, blob in keys:
        with suppress(DamagedContent):
            contents[source, blob] = content_of(blobs[blob], source)
    return contents


def content_of(blob: Blob, source: Source, size_bytes: int = word_rules.INDEXED_BYTES) -> bytes:
    """Return the beginning of a script or an environment, by lines. Raises `DamagedContent`."""
    content = read_start(blob, size_bytes)
    return content.replace(b"\0", b"\n") if source is Source.ENVIRONMENT else content
