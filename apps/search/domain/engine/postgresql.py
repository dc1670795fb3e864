"""The search in PostgreSQL: an index of words narrows down, and the texts themselves decide."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from heapq import merge
from itertools import islice
from typing import TypeVar

from django.db.models import Q, QuerySet

from apps.archive.domain.search import words as word_rules
from apps.archive.domain.search.search import TooWide, in_time
from apps.archive.domain.search.word_search import newest_with_words
from apps.archive.domain.store.contents import DamagedContent, read_start
from apps.archive.models import ArchivedJob, Blob
from apps.core.domain.expressions.runs import TooCostly
from apps.search.domain.engine.base import READ_SECONDS, Cursor, Hit, Hits, Scope, SearchRefused
from apps.search.domain.engine.conditions import (
    visible_archived_jobs,
    visible_jobs,
    with_visible_environment,
)
from apps.search.domain.engine.expressions import ExpressionCheck, expression_check
from apps.search.domain.engine.log_candidates import newest_logs
from apps.search.domain.engine.terms import required_terms
from apps.search.domain.logs.kept_texts import KeptLog, joined, texts_of
from apps.search.domain.logs.word_index import store_words
from apps.search.domain.query.clauses import Field, Query, Source, moment
from apps.search.domain.query.matching import Matcher, text_of
from apps.search.models import LogWords

K = TypeVar("K")

#: Texts that are read at once. Between two steps the time is looked at.
STEP = 25
#: Archived jobs that are taken from the index of scripts at once.
SCRIPTS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A text that may fulfil the query; `blob` is the content of a script or an environment."""

    hit: Hit
    blob: int | None = None


@dataclass
class _Decisions:
    """Which texts fulfil a query, each read at most once."""

    query: Query
    check: ExpressionCheck
    by_blob: dict[tuple[Source, int], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.matcher = Matcher(self.query)

    def fitting(self, candidates: Sequence[_Candidate]) -> list[Hit]:
        """Return the hits among candidates, in their order. Raises `TooCostly`."""
        if not self.query.texts:
            return [candidate.hit for candidate in candidates]
        jobs = {row.hit.key for row in candidates if row.hit.source is Source.LOG}
        logs = self._decide({job: joined(texts) for job, texts in texts_of(jobs).items()})
        new = set()
        for row in candidates:
            if row.blob is not None and (row.hit.source, row.blob) not in self.by_blob:
                new.add((row.hit.source, row.blob))
        self.by_blob |= self._decide(_contents(new))
        hits = []
        for row in candidates:
            if row.blob is None:
                fits = logs.get(row.hit.key, False)
            else:
                fits = self.by_blob.get((row.hit.source, row.blob), False)
            if fits:
                hits.append(row.hit)
        return hits

    def _decide(self, texts: Mapping[K, bytes]) -> dict[K, bool]:
        """Return for each text, by key, whether it fulfils the query."""
        fits = {}
        for key, data in texts.items():
            fits[key] = not self.matcher.decides or self.matcher.fits(text_of(data).lower())
        rest = [key for key, fit in fits.items() if fit]
        for key, fit in zip(rest, self.check([texts[key] for key in rest]), strict=True):
            fits[key] = fit
        return fits


class PostgresEngine:
    """Words by job and hour for logs, by script and day for scripts; environments are read."""

    def store(self, logs: Sequence[KeptLog]) -> None:
        """Replace the words of the logs of these jobs."""
        store_words(logs)

    def search(
        self,
        query: Query,
        scope: Scope,
        *,
        after: Cursor | None = None,
        size: int,
        seconds: float = READ_SECONDS,
    ) -> Hits:
        """Return the newest hits after a cursor, verified on the texts. Raises `SearchRefused`."""
        try:
            with in_time(), expression_check(query, scope.user) as check:
                return _search(query, scope, _Decisions(query, check), after, size, seconds)
        except (TooWide, TooCostly) as error:
            raise SearchRefused(str(error)) from None


def _search(
    query: Query,
    scope: Scope,
    decisions: _Decisions,
    after: Cursor | None,
    size: int,
    seconds: float,
) -> Hits:
    end = time.monotonic() + seconds
    candidates = _candidates(query, scope, after)
    hits: list[Hit] = []
    last: Hit | None = None
    while part := list(islice(candidates, STEP)):
        try:
            hits += decisions.fitting(part)
        except TooCostly:
            # What was searched before stands; alone, the expression is at fault.
            if last is None:
                raise
            return Hits(tuple(hits), Cursor.after(last), stopped=True)
        last = part[-1].hit
        if len(hits) > size:
            return Hits(tuple(hits[:size]), Cursor.after(hits[size - 1]))
        if time.monotonic() > end:
            if next(candidates, None) is None:
                break
            return Hits(tuple(hits), Cursor.after(last), stopped=True)
    return Hits(tuple(hits))


def _candidates(query: Query, scope: Scope, after: Cursor | None) -> Iterator[_Candidate]:
    """Yield texts that may fulfil the query, in the order of hits."""
    streams = []
    for source in query.sources:
        if source is Source.LOG:
            streams.append(_logs(query, scope, after))
        else:
            streams.append(_contents_of(source, query, scope, after))
    return merge(*streams, key=lambda row: row.hit.order, reverse=True)


def _logs(query: Query, scope: Scope, after: Cursor | None) -> Iterator[_Candidate]:
    rows = LogWords.objects.filter(_in_period(query, scope, "ended_at"))
    if after is not None:
        rows = rows.filter(_behind(after, Source.LOG, "ended_at", "pk"))
    newest = rows.order_by("-ended_at").values_list("ended_at", flat=True).first()
    if newest is None:
        return
    jobs = visible_jobs(query, scope.user)
    if jobs is not None:
        rows = rows.filter(job__in=jobs.values("pk"))
    for at, job in newest_logs(rows, required_terms(query), newest=newest):
        yield _Candidate(Hit(at, Source.LOG, job))


def _contents_of(
    source: Source, query: Query, scope: Scope, after: Cursor | None
) -> Iterator[_Candidate]:
    """Yield archived jobs whose scripts or environments may fulfil the query."""
    rows = visible_archived_jobs(query, scope.user)
    rows = rows.filter(_in_period(query, scope, "submitted_at"))
    terms: list[str] = []
    if source is Source.ENVIRONMENT:
        rows = with_visible_environment(rows, scope.user)
    else:
        terms = required_terms(query)
    while True:
        part = rows
        if after is not None:
            part = rows.filter(_behind(after, source, "submitted_at", "pk"))
        places = list(_newest_contents(part, source, terms))
        for at, key, blob in places:
            yield _Candidate(Hit(at, source, key), blob)
        if len(places) < SCRIPTS_AT_ONCE:
            return
        after = Cursor(places[-1][0], source, places[-1][1])


def _newest_contents(
    rows: QuerySet[ArchivedJob], source: Source, terms: Sequence[str]
) -> Iterator[tuple[datetime, int, int]]:
    facts = rows.order_by("-submitted_at", "-pk").values_list("submitted_at", "pk", source.value)
    if terms:
        yield from newest_with_words(facts, SCRIPTS_AT_ONCE, terms)
    else:
        yield from facts[:SCRIPTS_AT_ONCE]


def _contents(keys: set[tuple[Source, int]]) -> dict[tuple[Source, int], bytes]:
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


def _in_period(query: Query, scope: Scope, column: str) -> Q:
    """Return the condition of `since:` and `until:`."""
    condition = Q()
    for clause in query.of(Field.SINCE):
        condition &= Q(**{f"{column}__gte": moment(clause.value, at=scope.at)})
    for clause in query.of(Field.UNTIL):
        condition &= Q(**{f"{column}__lt": moment(clause.value, at=scope.at)})
    return condition


def _behind(cursor: Cursor, source: Source, time_column: str, key_column: str) -> Q:
    """Return the condition for the rows of a source that come after a cursor."""
    if source.value < cursor.source.value:
        return Q(**{f"{time_column}__lte": cursor.at})
    if source.value > cursor.source.value:
        return Q(**{f"{time_column}__lt": cursor.at})
    # The first condition is redundant, but lets PostgreSQL use an index.
    older = Q(**{f"{time_column}__lt": cursor.at})
    same = Q(**{time_column: cursor.at, f"{key_column}__lt": cursor.key})
    return Q(**{f"{time_column}__lte": cursor.at}) & (older | same)


ENGINE = PostgresEngine()
