"""Find the newest jobs with certain words in their scripts, by the index of words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock
from functools import lru_cache
from math import ceil, inf
from time import monotonic
from typing import TypeVar

from django.db import connection
from django.db.models import Q, QuerySet

from apps.archive.domain.search import words
from apps.archive.models import ArchivedJob, ScriptWords

T = TypeVar("T")

#: The next search goes this many times as far back as the hits so far suggest.
BEYOND = 2
#: Maximum ratio of the next number of days to those searched so far, for common words.
FURTHER = 8
#: A search by words covers at most this many days at a time; beyond, it is cheaper to search all
#: earlier days at once.
FAR_DAYS = 80
FAR_DAYS_OF_RARE = 30
#: A word is rare if less than this share of scripts contains it.
RARE = 0.005
#: The words that are not rare; no row if the database has not collected statistics yet.
_COMMON = f"""
SELECT ARRAY(SELECT word
    FROM unnest(most_common_elems::text::text[], most_common_elem_freqs) AS known (word, part)
             WHERE part >= {RARE})
FROM pg_stats
WHERE schemaname = current_schema() AND tablename = 'archive_scriptwords' AND attname = 'words'
      AND most_common_elems IS NOT NULL
"""
_COMMON_KEPT_SECONDS = 600


def newest_with_words(
    archived_jobs: QuerySet[ArchivedJob, T], count: int, terms: Sequence[str]
) -> Iterator[T]:
    """Yield the first `count` archived jobs, newest first, whose scripts contain all terms.

    `archived_jobs` are ordered newest first, `terms` are terms of a tsquery. The search starts with
    the newest day, and goes further back until there are enough jobs.
    """
    newest = archived_jobs.values_list("submitted_at", flat=True).first()
    if newest is None:
        return
    rare = are_rare(terms)
    keep = with_rare_words if rare else with_words
    days = _Days(newest.astimezone(UTC).date(), None)
    yielded = 0
    while True:
        hits = list(keep(days.of(archived_jobs), terms, among=days.words)[: count - yielded])
        yield from hits
        yielded += len(hits)
        if yielded >= count or days.first is None:
            return

        looked = (newest - _midnight(days.first)) / timedelta(days=1)
        length = _next_days(looked=looked, hits=yielded, missing=count - yielded, rare=rare)
        # Do not go back beyond the first day of the calendar.
        has_start = length is not None and days.first.toordinal() > length
        days = _Days(
            days.first - timedelta(days=length) if length and has_start else None, days.first
        )


def _next_days(*, looked: float, hits: int, missing: int, rare: bool) -> int | None:
    """Return how many days to search next, after `hits` in the days searched so far.

    None stands for all earlier days.
    """
    days = BEYOND * looked * missing / hits if hits else inf
    if not rare:
        days = min(days, FURTHER * looked)

    most = FAR_DAYS_OF_RARE if rare else FAR_DAYS
    return max(1, ceil(days)) if days <= most else None


@dataclass(frozen=True)
class _Days:
    """Days of submission, from `first` until before `end`; None means unbounded."""

    first: date | None
    end: date | None

    @property
    def words(self) -> list[str]:
        """Return words of which every script of these days has one; none if `first` is None."""
        if self.first is None:
            return []
        return words.words_of_days(
            self.first, self.end - timedelta(days=1) if self.end else self.first
        )

    def of(self, archived_jobs: QuerySet[ArchivedJob, T]) -> QuerySet[ArchivedJob, T]:
        """Keep the rows of these days."""
        if self.first is not None:
            archived_jobs = archived_jobs.filter(submitted_at__gte=_midnight(self.first))
        if self.end is not None:
            archived_jobs = archived_jobs.filter(submitted_at__lt=_midnight(self.end))
        return archived_jobs


def _midnight(day: date) -> datetime:
    return datetime.combine(day, clock.min, UTC)


def with_words(
    archived_jobs: QuerySet[ArchivedJob, T], terms: Sequence[str], *, among: Sequence[str] = ()
) -> QuerySet[ArchivedJob, T]:
    """Keep jobs whose scripts contain all terms, and one of the words `among`, if any."""
    matching = [Q(words__matches=query) for query in _queries(terms, among)]
    return archived_jobs.filter(script__in=ScriptWords.objects.filter(*matching).values("script"))


def with_rare_words(
    archived_jobs: QuerySet[ArchivedJob, T], terms: Sequence[str], *, among: Sequence[str] = ()
) -> QuerySet[ArchivedJob, T]:
    """Keep the same jobs, for terms that few scripts contain."""
    return archived_jobs.filter(script__found_first=_queries(terms, among))


def _queries(terms: Sequence[str], among: Sequence[str]) -> list[str]:
    """Return the tsqueries that must all match.

    The days are a separate tsquery. With two tsqueries, the index skips from hit to hit. With one,
    it would read every script of the days if the words of the days are the rarest.
    """
    return list(filter(None, [" & ".join(terms), " | ".join(map(words.quote_lexeme, among))]))


def are_rare(terms: Sequence[str]) -> bool:
    """Return whether one of the words is rare, by the database's statistics on common words.

    For all other words the planner assumes half a percent: a search for a word that no script
    contains would read every job.
    """
    common = _common_words(int(monotonic() / _COMMON_KEPT_SECONDS))
    return common is not None and any(
        term.endswith("'") and words.unquote_lexeme(term) not in common for term in terms
    )


@lru_cache(maxsize=1)
def _common_words(_period: int) -> frozenset[str] | None:
    """Return the words that are not rare.

    They are read once per period, because reading them takes longer than a search.
    """
    with connection.cursor() as cursor:
        cursor.execute(_COMMON)
        common = cursor.fetchone()
    return None if common is None else frozenset(common[0])
