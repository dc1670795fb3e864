"""Check the candidates of an index against their texts, for any engine."""

import time
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from math import ceil
from typing import TypeVar

from apps.archive.domain.search.search import TooWide, in_time
from apps.core.domain.expressions.runs import TooCostly
from apps.search.domain.engine.base import Cursor, Hits, SearchHit, SearchRefused, SearchScope
from apps.search.domain.engine.contents import contents_of, newest_contents
from apps.search.domain.engine.expressions import ExpressionCheck, expression_check
from apps.search.domain.engine.places import HitCandidate
from apps.search.domain.logs.kept_texts import join_texts, texts_of
from apps.search.domain.query.clauses import Query, Source
from apps.search.domain.query.matcher import QueryMatcher, decode_text, in_lower_case

K = TypeVar("K")

#: Texts that are read in one step: in the first, and at most. The time is checked between steps.
FIRST_STEP = 25
MOST_STEP = 200


def search_candidates(
    query: Query,
    scope: SearchScope,
    logs: Iterator[HitCandidate],
    *,
    after: Cursor | None,
    size: int,
    seconds: float,
) -> Hits:
    """Return the newest hits behind a cursor: in `logs`, scripts and environments.

    `logs` yields jobs behind the cursor whose logs may fulfil the query, in the order of hits; it
    is read only if the query asks for logs. Raises `SearchRefused`.
    """
    streams = []
    for source in query.sources:
        if source is Source.LOG:
            streams.append(logs)
        else:
            streams.append(newest_contents(source, query, scope, after))
    candidates = merge(*streams, key=lambda candidate: candidate.hit.order, reverse=True)
    try:
        with in_time(), expression_check(query, scope.user) as check_expressions:
            text_check = _TextCheck(query, check_expressions)
            return _search(candidates, text_check, size, seconds)
    except (TooWide, TooCostly) as error:
        raise SearchRefused(str(error)) from None


class _TextCheck:
    """Checks which texts of candidates fulfil a query."""

    def __init__(self, query: Query, check_expressions: ExpressionCheck) -> None:
        self._query = query
        self._matcher = QueryMatcher(query)
        self._check_expressions = check_expressions
        #: Whether scripts and environments fulfil the query. Several jobs may share one.
        self._results_by_blob: dict[tuple[Source, int], bool] = {}

    def hits_among(self, candidates: Sequence[HitCandidate]) -> list[SearchHit]:
        """Return the hits among candidates, in their order. Raises `TooCostly`."""
        candidates = [candidate for candidate in candidates if not candidate.excluded]
        if not self._query.texts:
            return [candidate.hit for candidate in candidates]

        matching_jobs = self._jobs_with_matching_logs(candidates)
        self._check_new_blobs(candidates)
        hits = []
        for candidate in candidates:
            hit = candidate.hit
            if candidate.blob is None:
                is_hit = hit.key in matching_jobs
            else:
                is_hit = self._results_by_blob.get((hit.source, candidate.blob), False)
            if is_hit:
                hits.append(hit)
        return hits

    def _jobs_with_matching_logs(self, candidates: Sequence[HitCandidate]) -> set[int]:
        """Return the primary keys of the jobs among candidates whose logs fulfil the query."""
        jobs = set()
        for candidate in candidates:
            if candidate.hit.source is Source.LOG:
                jobs.add(candidate.hit.key)
        return self._matching({job: join_texts(texts) for job, texts in texts_of(jobs).items()})

    def _check_new_blobs(self, candidates: Sequence[HitCandidate]) -> None:
        """Check the scripts and environments of candidates that were not checked yet.

        Damaged ones do not fulfil the query.
        """
        new = set()
        for candidate in candidates:
            if candidate.blob is not None:
                new.add((candidate.hit.source, candidate.blob))
        new -= self._results_by_blob.keys()
        matching = self._matching(contents_of(new))
        for key in new:
            self._results_by_blob[key] = key in matching

    def _matching(self, texts: Mapping[K, bytes]) -> set[K]:
        """Return the keys of the texts that fulfil the query. Raises `TooCostly`.

        Expressions take longest, so they are matched only with texts that fulfil the rest.
        """
        keys = []
        for key, data in texts.items():
            is_candidate = True
            if self._matcher.has_words_or_phrases:
                is_candidate = self._matcher.matches(in_lower_case(decode_text(data)))
            if is_candidate:
                keys.append(key)
        results = self._check_expressions([texts[key] for key in keys])
        return {key for key, matches in zip(keys, results, strict=True) if matches}


def _search(
    candidates: Iterator[HitCandidate], text_check: _TextCheck, size: int, seconds: float
) -> Hits:
    end = time.monotonic() + seconds
    hits: list[SearchHit] = []
    last: SearchHit | None = None
    step = FIRST_STEP
    read = 0
    while part := list(islice(candidates, step)):
        try:
            hits += text_check.hits_among(part)
        except TooCostly:
            # Return the hits of earlier steps. In the first step, the expression is too costly.
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
    """Return how many texts to read next: as many as probably contain the missing hits.

    At most twice as many as in the step before, so that a step never takes much longer than all
    before it.
    """
    likely = ceil(missing * read / hits) if hits else MOST_STEP
    return min(2 * step, likely, MOST_STEP)
