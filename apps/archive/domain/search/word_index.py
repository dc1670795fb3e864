"""Fill the index of words in the background, in limited batches, one transaction each."""

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

# A transaction that inserts a job holds this lock from before the job gets its primary key until
# the job is visible or rolled back.
_WRITERS = """
SELECT virtualtransaction FROM pg_locks
WHERE locktype = 'relation' AND relation = 'archive_archivedjob'::regclass
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND mode = 'RowExclusiveLock' AND granted AND pid IS DISTINCT FROM pg_backend_pid()
"""


def index_for(*, seconds: float, at: datetime) -> int:
    """Index batches until all jobs are indexed, another process does it, or the time is over.

    Return the number of indexed jobs.
    """
    end = time.monotonic() + seconds
    done = 0
    while (jobs := index_batch(at=at)) and time.monotonic() < end:
        done += jobs
    return done + jobs


@transaction.atomic
def index_batch(*, at: datetime) -> int:
    """Index the next jobs; return their number.

    Safe to repeat or to interrupt.
    """
    WordIndex.objects.get_or_create(pk=1)
    # None while another process holds the lock.
    index = WordIndex.objects.select_for_update(skip_locked=True).filter(pk=1).first()
    if index is None or not _next_goal(index):
        return 0
    jobs = ArchivedJob.objects.filter(pk__gt=index.indexed_to, pk__lte=index.goal).order_by("pk")
    batch = list(jobs.values_list("pk", "script_id", "submitted_at")[:BATCH])
    _insert({(script, submitted_at.astimezone(UTC).date()) for _, script, submitted_at in batch})
    index.indexed_to = batch[-1][0] if len(batch) == BATCH else index.goal
    index.indexed_at = at
    index.save()
    return len(batch)


def jobs_waiting(*, at_most: int) -> int:
    """Return how many jobs are not indexed yet, counting at most `at_most`."""
    index = WordIndex.objects.first()
    return ArchivedJob.objects.filter(pk__gt=index.indexed_to if index else 0)[:at_most].count()


def _next_goal(index: WordIndex) -> bool:
    """Return whether there are jobs to index; set a new goal once the last is reached.

    Primary keys are assigned before commit, so a lower one may become visible after a higher one.
    A goal is therefore used only after all transactions that were writing jobs when it was set have
    ended. Other transactions, however long, are not waited for.
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
    """Return IDs, never reused, of other transactions that are writing jobs."""
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
            # Add all new words of the batch to the index at once, in index order: this is far
            # faster than one by one.
            cursor.execute("SELECT gin_clean_pending_list('script_words')")


def _texts(scripts: set[int]) -> Iterator[tuple[int, set[str]]]:
    """Yield the words of each script; a damaged script has none."""
    for blob in Blob.objects.filter(pk__in=scripts).iterator(chunk_size=200):
        try:
            start = read_start(blob, words.INDEXED_BYTES)
        except DamagedContent:
            start = b""
        yield blob.pk, words.words_of(words.as_text(start))
