"""Jobs whose logs may fulfil a query, newest first, by the index of words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db.models import F, Q, QuerySet
from django.db.models.expressions import CombinedExpression, OrderBy

from apps.archive.domain.search import words as word_rules
from apps.search.domain.logs.words import CUT, hour_word
from apps.search.models import LogWords

#: Hours searched first, and how many times as many come next.
FIRST_HOURS = 1
GROWTH = 8
#: Up to these lengths, the hours, days and weeks of a span are words of the search. Beyond, it is
#: cheaper to search all that is older at once.
MOST_HOURS = 24
MOST_DAYS = 14
MOST_WEEKS = 20
#: Rows of the first query of a span, and of the largest one.
FIRST_ROWS = 64
MOST_ROWS = 4_096

#: End and primary key of a job.
Place = tuple[datetime, int]


def newest_logs(
    log_words: QuerySet[LogWords], terms: Sequence[str], *, newest: datetime
) -> Iterator[Place]:
    """Yield the jobs of `rows` whose logs have all terms, newest first; none ended after `newest`.

    Logs with more words than the index holds are among them.
    """
    if not terms:
        yield from _in_order(log_words, F("ended_at"))
        return
    matching = log_words.filter(
        words__matches=f"({' & '.join(terms)}) | {word_rules.quote_lexeme(CUT)}"
    )
    span: _Span | None = _Span.newest(newest)
    while span is not None:
        # The planner takes each word for a common one, and would read log after log in the order
        # of their ends. By this sum it cannot, and looks the words up.
        yield from _in_order(span.of(matching), F("ended_at") + timedelta(0))
        span = span.before()


def _in_order(log_words: QuerySet[LogWords], ended_at: F | CombinedExpression) -> Iterator[Place]:
    """Yield end and job of all rows, newest first, in larger and larger queries."""
    newest_first = log_words.order_by(OrderBy(ended_at, descending=True), "-pk")
    count = FIRST_ROWS
    last: Place | None = None
    while True:
        part = newest_first if last is None else newest_first.filter(older_than(last))
        places = list(part.values_list("ended_at", "job_id")[:count])
        yield from places
        if len(places) < count:
            return
        last = places[-1]
        count = min(count * 4, MOST_ROWS)


def older_than(place: Place) -> Q:
    """Return the condition for rows behind a place in the order."""
    ended_at, job = place
    # The first condition is redundant, but lets PostgreSQL use an index.
    behind = Q(ended_at__lt=ended_at) | Q(ended_at=ended_at, pk__lt=job)
    return Q(ended_at__lte=ended_at) & behind


@dataclass(frozen=True, slots=True)
class _Span:
    """Hours from `first` until before `end`; None stands for the beginning of time."""

    first: datetime | None
    end: datetime
    hours: int

    @staticmethod
    def newest(newest: datetime) -> "_Span":
        end = newest.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        end += timedelta(hours=1)
        return _Span(end - timedelta(hours=FIRST_HOURS), end, FIRST_HOURS)

    def before(self) -> "_Span | None":
        """Return the next span, of more hours; None after all time."""
        if self.first is None:
            return None
        hours = self.hours * GROWTH
        if hours > MOST_WEEKS * 7 * 24:
            return _Span(None, self.first, hours)
        return _Span(self.first - timedelta(hours=hours), self.first, hours)

    def of(self, log_words: QuerySet[LogWords]) -> QuerySet[LogWords]:
        """Keep the rows of this span.

        Its hours, days or weeks are a tsquery of their own: between two, the index leaps from hit
        to hit, and within one, it reads each row of the span.
        """
        log_words = log_words.filter(ended_at__lt=self.end)
        if self.first is None:
            return log_words
        any_of = " | ".join(map(word_rules.quote_lexeme, self._words(self.first)))
        return log_words.filter(ended_at__gte=self.first, words__matches=any_of)

    def _words(self, first: datetime) -> list[str]:
        if self.hours <= MOST_HOURS:
            return [hour_word(first + timedelta(hours=hour)) for hour in range(self.hours)]
        last_day = (self.end - timedelta(hours=1)).date()
        if self.hours <= MOST_DAYS * 24:
            days = range(first.date().toordinal(), last_day.toordinal() + 1)
            return [word_rules.day_word(datetime.fromordinal(day).date()) for day in days]
        return word_rules.week_words(first.date(), last_day)
