"""The index of logs in PostgreSQL: words by job and hour."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from django.db import connection

from apps.search.domain.engine.base import READ_SECONDS, Cursor, Hits, SearchHit, SearchScope
from apps.search.domain.engine.candidate_checks import search_candidates
from apps.search.domain.engine.conditions import visible_jobs
from apps.search.domain.engine.log_candidates import newest_logs
from apps.search.domain.engine.places import HitCandidate, comes_after, in_period
from apps.search.domain.engine.terms import required_words, tsquery_terms
from apps.search.domain.logs.kept_texts import KeptLog, kept_of
from apps.search.domain.logs.words import time_words, words_of_log
from apps.search.domain.query.clauses import Query, Source
from apps.search.models import LogIndex, LogWords

#: Rows that are looked through at once for logs that are no longer kept.
BATCH = 1_000
_STORE = """
INSERT INTO search_logwords (job_id, ended_at, words)
SELECT job, ended_at, array_to_tsvector(string_to_array(words, ' '))
FROM unnest(%s::bigint[], %s::timestamptz[], %s::text[]) AS new (job, ended_at, words)
ON CONFLICT (job_id) DO UPDATE SET ended_at = EXCLUDED.ended_at, words = EXCLUDED.words
"""
_STORED = """
SELECT job_id, ended_at, tsvector_to_array(words) FROM search_logwords WHERE job_id = ANY (%s)
"""


class PostgresEngine:
    """Words by job and hour. A rebuilt index replaces the words of each log where they are."""

    name = "postgresql"
    layout = 1
    has_experiments = False

    def store(self, logs: Sequence[KeptLog], *, only: LogIndex | None = None) -> Mapping[int, str]:
        """Replace the words of the logs of these jobs."""
        self.forget([log.job_pk for log in logs if not log.texts])
        kept = [log for log in logs if log.texts]
        if not kept:
            return {}
        rows = []
        for log in sorted(kept, key=lambda log: log.job_pk):
            rows.append((log.job_pk, log.ended_at, " ".join(_words(log))))
        with connection.cursor() as cursor:
            cursor.execute(_STORE, [list(column) for column in zip(*rows, strict=True)])
        return {}

    def forget(self, job_pks: Iterable[int]) -> set[int]:
        """Remove the words of these jobs; no worker has to."""
        LogWords.objects.filter(job__in=job_pks).delete()
        return set()

    def search(
        self,
        query: Query,
        scope: SearchScope,
        *,
        after: Cursor | None = None,
        size: int,
        seconds: float = READ_SECONDS,
    ) -> Hits:
        """Return the newest hits after a cursor, verified on the texts. Raises `SearchRefused`."""
        logs = _logs(query, scope, after)
        return search_candidates(query, scope, logs, after=after, size=size, seconds=seconds)

    def check(self) -> None:
        """Do nothing: without the database there is no portal."""

    def differences(self, logs: Sequence[KeptLog]) -> Mapping[int, str]:
        """Return what is wrong in the index of these logs, by job."""
        with connection.cursor() as cursor:
            cursor.execute(_STORED, [[log.job_pk for log in logs]])
            stored = {job: (ended_at, set(lexemes)) for job, ended_at, lexemes in cursor.fetchall()}
        wrong = {}
        for log in logs:
            if log.job_pk not in stored:
                wrong[log.job_pk] = "is missing"
            elif stored[log.job_pk] != (log.ended_at, _words(log)):
                wrong[log.job_pk] = "has other words or another time"
        return wrong

    def jobs_after(self, job_pk: int, most: int) -> list[int]:
        rows = LogWords.objects.filter(job__gt=job_pk).order_by("job")
        return list(rows.values_list("job_id", flat=True)[:most])

    def finish(self, index: LogIndex) -> None:
        """Remove the words of logs that are no longer kept."""
        last = 0
        while job_pks := self.jobs_after(last, BATCH):
            self.forget(set(job_pks) - kept_of(job_pks))
            last = job_pks[-1]

    def clean_up(self) -> None:
        """Do nothing: indexes share their rows."""


def _words(log: KeptLog) -> set[str]:
    return words_of_log(log.data) | set(time_words(log.ended_at))


def _logs(query: Query, scope: SearchScope, after: Cursor | None) -> Iterator[HitCandidate]:
    """Yield jobs whose logs may fulfil the query, newest first."""
    rows = LogWords.objects.filter(in_period(query, scope, "ended_at"))
    if after is not None:
        rows = rows.filter(comes_after(after, Source.LOG, "ended_at", "pk"))
    newest = rows.order_by("-ended_at").values_list("ended_at", flat=True).first()
    if newest is None:
        return
    jobs = visible_jobs(query, scope.user)
    if jobs is not None:
        rows = rows.filter(job__in=jobs.values("pk"))
    for at, job in newest_logs(rows, tsquery_terms(required_words(query)), newest=newest):
        yield HitCandidate(SearchHit(at, Source.LOG, job))
