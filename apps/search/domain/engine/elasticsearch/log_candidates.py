"""Jobs whose logs may fulfil a query, newest first, by the indexes of months."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from apps.accounts.permissions import scope_of
from apps.archive.sinks.base import SinkUnavailable
from apps.archive.sinks.elasticsearch.bulk import BulkRejected
from apps.jobs.models import Job
from apps.search.domain.engine.base import Cursor, SearchHit, SearchScope, SearchUnavailable
from apps.search.domain.engine.conditions import visible_jobs
from apps.search.domain.engine.elasticsearch.target import (
    Target,
    microseconds_of,
    moment_of,
    month_of,
)
from apps.search.domain.engine.places import HitCandidate
from apps.search.domain.engine.terms import Required, required_words
from apps.search.domain.logs.kept_texts import kept_of
from apps.search.domain.logs.words import CUT
from apps.search.domain.query.clauses import Field, Query, Source, parse_moment
from apps.search.models import LogIndex

#: How long to wait for a node before another one is asked.
SEARCH_SECONDS = 5.0
#: Rows of the first request, and of the largest one.
FIRST_ROWS = 64
MOST_ROWS = 4_096
#: Months are searched in batches, newest first: one month, then `GROWTH` times as many each time.
GROWTH = 2
_ANSWER = "timed_out,_shards.total,_shards.successful,_shards.failed,hits.hits.sort"
_AWAY = (
    "The index of logs does not answer. Retry in a minute, or search scripts alone with in:script."
)
_PARTIAL = (
    "Only a part of the index of logs answers, so results would be missing. Retry in a minute, or "
    "search scripts alone with in:script."
)
_NO_ACCESS = (
    "The index of logs refuses the portal's credentials, so logs cannot be searched until an "
    "administrator has set others. Search scripts alone with in:script."
)
_NO_ACCESS_STATUSES = frozenset({401, 403})

#: Microseconds of the end of a job, and its primary key.
Place = tuple[int, int]


def newest_logs(
    target: Target, index: LogIndex, query: Query, scope: SearchScope, after: Cursor | None
) -> Iterator[HitCandidate]:
    """Yield jobs behind a cursor whose logs may fulfil the query.

    What the index says of a job only narrows down: the database decides who may see it, and
    whether it still ended at this time and has kept logs. Raises `SearchUnavailable`.
    """
    user_scope = scope_of(scope.user)
    if not user_scope.sees_all and not user_scope.experiment_keys:
        return
    first, end = _period(query, scope)
    request = _Request(target, index, _condition(query, scope, first, end))
    place = None if after is None else _place_behind(after)
    newest = end if place is None else min(place[0], end or place[0])
    for months in _months(index, first, newest):
        for places in request.pages(months, place):
            yield from _verified(query, scope, places)


def _period(query: Query, scope: SearchScope) -> tuple[int | None, int | None]:
    """Return the earliest end of a job that is searched, and the one before which, if any."""
    first = [
        microseconds_of(parse_moment(term.value, at=scope.at)) for term in query.of(Field.SINCE)
    ]
    end = [microseconds_of(parse_moment(term.value, at=scope.at)) for term in query.of(Field.UNTIL)]
    return max(first, default=None), min(end, default=None)


def _condition(
    query: Query, scope: SearchScope, first: int | None, end: int | None
) -> dict[str, Any]:
    filters: list[dict[str, Any]] = []
    required = required_words(query)
    if required:
        has_all = {"bool": {"filter": [_word_condition(row) for row in required]}}
        filters.append({"bool": {"should": [has_all, {"term": {"words": CUT}}]}})
    bounds = {}
    if first is not None:
        bounds["gte"] = first
    if end is not None:
        bounds["lt"] = end
    if bounds:
        filters.append({"range": {"ended_at": bounds}})
    user_scope = scope_of(scope.user)
    if not user_scope.sees_all:
        # An experiment may claim jobs that were of none when they were indexed.
        filters.append({"terms": {"experiment": [0, *sorted(user_scope.experiment_keys)]}})
    return {"bool": {"filter": filters}}


def _word_condition(required: Required) -> dict[str, Any]:
    kind = "prefix" if required.is_prefix else "term"
    return {kind: {"words": required.word}}


def _place_behind(cursor: Cursor) -> Place:
    """Return the position in the index after which a search continues.

    Hits of one time are ordered by their source.
    """
    at = microseconds_of(cursor.at)
    if cursor.source is Source.LOG:
        return at, cursor.key
    return (at + 1, 0) if Source.LOG.value < cursor.source.value else (at, 0)


def _months(index: LogIndex, first: int | None, newest: int | None) -> Iterator[list[str]]:
    """Yield the months of an index, newest first, more and more at once."""
    months = sorted(index.months, reverse=True)
    if newest is not None:
        months = [month for month in months if month <= _month(newest)]
    if first is not None:
        months = [month for month in months if month >= _month(first)]
    count = 1
    while months:
        yield months[:count]
        months = months[count:]
        count *= GROWTH


def _month(count: int) -> str:
    return month_of(moment_of(count))


class _Request:
    """A search of the index, page by page."""

    def __init__(self, target: Target, index: LogIndex, condition: dict[str, Any]) -> None:
        self._target = target
        self._index = index
        self._condition = condition

    def pages(self, months: Sequence[str], place: Place | None) -> Iterator[list[Place]]:
        """Yield what these months have behind a place, in larger and larger parts."""
        count = FIRST_ROWS
        while True:
            places = self._ask(months, place, count)
            yield places
            if len(places) < count:
                return
            place = places[-1]
            count = min(count * 4, MOST_ROWS)

    def _ask(self, months: Sequence[str], place: Place | None, count: int) -> list[Place]:
        connection = self._target.connection
        client = connection.client().options(request_timeout=SEARCH_SECONDS, retry_on_timeout=True)
        behind: dict[str, Any] = {} if place is None else {"search_after": list(place)}
        try:
            with connection.translated():
                answer = client.search(
                    index=self._target.indexes_of(self._index.generation, months),
                    query=self._condition,
                    sort=[{"ended_at": "desc"}, {"job": "desc"}],
                    size=count,
                    track_total_hits=False,
                    allow_partial_search_results=False,
                    filter_path=_ANSWER,
                    **behind,
                )
        except SinkUnavailable as error:
            raise SearchUnavailable(_AWAY, reason=str(error)) from error
        except BulkRejected as error:
            message = _NO_ACCESS if error.status in _NO_ACCESS_STATUSES else _PARTIAL
            raise SearchUnavailable(message, reason=str(error)) from error
        shards = answer["_shards"]
        if answer["timed_out"] or shards["failed"] or shards["successful"] < shards["total"]:
            raise SearchUnavailable(_PARTIAL, reason=f"answer of {shards}")
        return [(hit["sort"][0], hit["sort"][1]) for hit in answer.get("hits", {}).get("hits", ())]


def _verified(query: Query, scope: SearchScope, places: Sequence[Place]) -> Iterator[HitCandidate]:
    """Yield the jobs that the user may see and that still ended at their time.

    Those that do not fulfil the fields of the query are excluded.
    """
    visible: dict[int, datetime] = dict(
        Job.objects.visible_to(scope.user)
        .filter(pk__in=[job for _, job in places])
        .values_list("pk", "ended_at")
    )
    fulfilling = set(visible)
    jobs = visible_jobs(query, scope.user)
    if jobs is not None:
        fulfilling = set(jobs.filter(pk__in=fulfilling).values_list("pk", flat=True))
    if not query.texts:
        # No text is read that would be missing.
        fulfilling = kept_of(fulfilling)
    for at, job in places:
        if job in visible and microseconds_of(visible[job]) == at:
            hit = SearchHit(visible[job], Source.LOG, job)
            yield HitCandidate(hit, excluded=job not in fulfilling)
