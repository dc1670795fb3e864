"""Fills the index of words in the background, in limited batches, each one transaction."""

import time
from collections.abc import Iterator
from datetime import UTC, date, datetime

from django.db import connection, transaction
from django.db.models import Max

from apps.archive.domain.search import words
from apps.archive.domain.store.contents import DamagedContent, read_start
from apps.archive.models import ArchivedJob, Blob, ScriptWords, WordIndex

BATCH = 1000
_INSERT = """
INSERT INTO archive_scriptwords (script_id, day, words)
SELECT script_id, day, array_to_tsvector(string_to_array(words, ' '))
FROM unnest(%s::bigint[], %s::date[], %s::text[]) AS new (script_id, day, words)
ON CONFLICT DO NOTHING
"""

# Whoever inserts a job holds this lock from before the job gets its number until it can be seen, or
# never will.
_WRITERS = """
SELECT virtualtransaction FROM pg_locks
WHERE locktype = 'relation' AND relation = 'archive_archivedjob'::regclass
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND mode = 'RowExclusiveLock' AND granted AND pid IS DISTINCT FROM pg_backend_pid()
"""


def index_for(*, seconds: float, at: datetime) -> int:
    """Index batches until all is done, somebody else does it, or the time is over;
    return how many jobs were.
    """
    end = time.monotonic() + seconds
    done = 0
    while (jobs := index_batch(at=at)) and time.monotonic() < end:
        done += jobs
    return done + jobs


@transaction.atomic
def index_batch(*, at: datetime) -> int:
    """Index the next jobs; return how many.

    Whatever is done twice, or breaks off, changes nothing.
    """
    WordIndex.objects.get_or_create(pk=1)
    index = (
        WordIndex.objects.select_for_update(skip_locked=True).filter(pk=1).first()
    )  # None while another has it
    if index is None or not _next_goal(index):
        return 0
    jobs = ArchivedJob.objects.filter(pk__gt=index.indexed_to, pk__lte=index.goal).order_by("pk")
    batch = list(jobs.values_list("pk", "script_id", "submitted_at")[:BATCH])
    _insert({(script, at.astimezone(UTC).date()) for _, script, at in batch})
    index.indexed_to = batch[-1][0] if len(batch) == BATCH else index.goal
    index.indexed_at = at
    index.save()
    return len(batch)


def jobs_waiting(*, at_most: int) -> int:
    """Return how many jobs are not indexed yet; counted no further than `at_most`."""
    index = WordIndex.objects.first()
    return ArchivedJob.objects.filter(pk__gt=index.indexed_to if index else 0)[:at_most].count()


def _next_goal(index: WordIndex) -> bool:
    """Tell whether there are jobs to index; set a new goal when the last is reached.

    Numbers of jobs are given before they are committed: a lower one may appear after a higher one.
    So a goal counts when every transaction is over that was writing jobs when it was set. Others,
    however long, are not waited for.
    """
    if index.indexed_to >= index.goal:
        newest = ArchivedJob.objects.aggregate(newest=Max("pk"))["newest"] or 0
        if newest <= index.indexed_to:
            return False
        index.goal = newest
        index.goal_waits_for = sorted(_writers())
        index.save()
    return not index.goal_waits_for or _writers().isdisjoint(index.goal_waits_for)


def _writers() -> set[str]:
    """Return the transactions of others that write jobs now, by names that no later one gets."""
    with connection.cursor() as cursor:
        cursor.execute(_WRITERS)
        return {name for (name,) in cursor.fetchall()}


def _insert(pairs: set[tuple[int, date]]) -> None:
    scripts = {script for script, _ in pairs}
    known = set(ScriptWords.objects.filter(script__in=scripts).values_list("script_id", "day"))
    texts = dict(_texts({script for script, _ in pairs - known}))
    rows = []
    for script, day in sorted(pairs - known):
        rows.append(
            (
                script,
                day,
                " ".join([words.day_word(day), *words.week_words(day, day), *texts[script]]),
            )
        )
    if rows:
        with connection.cursor() as cursor:
            cursor.execute(_INSERT, [list(column) for column in zip(*rows, strict=True)])
            # All new words of a batch go into the index in one go, in its order: far faster than
            # one by one.
            cursor.execute("SELECT gin_clean_pending_list('script_words')")


def _texts(scripts: set[int]) -> Iterator[tuple[int, set[str]]]:
    """Yield the words of each script; a damaged one has none."""
    for blob in Blob.objects.filter(pk__in=scripts).iterator(chunk_size=200):
        try:
            start = read_start(blob, words.INDEXED_BYTES)
        except DamagedContent:
            start = b""
        yield blob.pk, words.words_of(words.as_text(start))
