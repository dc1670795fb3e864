"""Check the candidates of an index against their texts, for any engine."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from math import ceil
from typing import TypeVar

from apps.archive.domain.search.search import TooWide, in_time
from apps.core.domain.expressions.runs import TooCostly
from apps.search.domain.engine.base import Cursor, Hit, Hits, Scope, SearchRefused
from apps.search.domain.engine.contents import contents_of, newest_contents
from apps.search.domain.engine.expressions import ExpressionCheck, expression_check
from apps.search.domain.engine.places import Candidate
from apps.search.domain.logs.kept_texts import joined, texts_of
from apps.search.domain.query.clauses import Query, Source
from apps.search.domain.query.matching import Matcher, in_lower_case, text_of

K = TypeVar("K")

#: Texts that are read at once, first and at most. Between two steps the time is looked at.
FIRST_STEP = 25
MOST_STEP = 200


def search_candidates(
    query: Query,
    scope: Scope,
    logs: Iterator[Candidate],
    *,
    after: Cursor | None,
    size: int,
    seconds: float,
) -> Hits:
    """Return the newest hits behind a cursor: those of `logs`, and scripts and environments.

    `logs` yields jobs behind the cursor whose logs may fulfil the query, in the order of hits; it
    is read only if the query asks for logs. Raises `SearchRefused`.
    """
    streams = []
    for source in query.sources:
        if source is Source.LOG:
            streams.append(logs)
        else:
            streams.append(newest_contents(source, query, scope, after))
    candidates = merge(*streams, key=lambda row: row.hit.order, reverse=True)
    try:
        with in_time(), expression_check(query, scope.user) as check:
            return _search(candidates, _Decisions(query, check), size, seconds)
    except (TooWide, TooCostly) as error:
        raise SearchRefused(str(error)) from None


@dataclass
class _Decisions:
    """Which texts fulfil a query, each read at most once."""

    query: Query
    check: ExpressionCheck
    by_blob: dict[tuple[Source, int], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.matcher = Matcher(self.query)

    def fitting(self, candidates: Sequence[Candidate]) -> list[Hit]:
        """Return the hits among candidates, in their order. Raises `TooCostly`."""
        candidates = [row for row in candidates if not row.excluded]
        if not self.query.texts:
            return [candidate.hit for candidate in candidates]
        jobs = {row.hit.key for row in candidates if row.hit.source is Source.LOG}
        logs = self._decide({job: joined(texts) for job, texts in texts_of(jobs).items()})
        new = set()
        for row in candidates:
            if row.blob is not None and (row.hit.source, row.blob) not in self.by_blob:
                new.add((row.hit.source, row.blob))
        self.by_blob |= self._decide(contents_of(new))
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
            fits[key] = not self.matcher.decides or self.matcher.fits(in_lower_case(text_of(data)))
        rest = [key for key, fit in fits.items() if fit]
        for key, fit in zip(rest, self.check([texts[key] for key in rest]), strict=True):
            fits[key] = fit
        return fits


def _search(
    candidates: Iterator[Candidate], decisions: _Decisions, size: int, seconds: float
) -> Hits:
    end = time.monotonic() + seconds
    hits: list[Hit] = []
    last: Hit | None = None
    step = FIRST_STEP
    read = 0
    while part := list(islice(candidates, step)):
        try:
            hits += decisions.fitting(part)
        except TooCostly:
            # What was searched before stands; alone, the expression is at fault.
            if last is None:
                raise
            return Hits(tuple(hits), Cursor.after(last), stopped=True)
        last = part[-1].hit
        read += len(part)
        if len(hits) > size:
            return Hits(tuple(hits[:size]), Cursor.after(hits[size - 1]))
        step = _next_step(step, read=read, hits=len(hits), missing=size + 1 - len(hits))
        if time.monotonic() > end:
            if next(candidates, None) is None:
                break
            return Hits(tuple(hits), Cursor.after(last), stopped=True)
    return Hits(tuple(hits))


def _next_step(step: int, *, read: int, hits: int, missing: int) -> int:
    """Return how many texts to read next: as many as are likely to have the missing hits.

    At most twice as many as in the step before, so that it takes little longer than what passed.
    """
    likely = ceil(missing * read / hits) if hits else MOST_STEP
    return min(2 * step, likely, MOST_STEP)
