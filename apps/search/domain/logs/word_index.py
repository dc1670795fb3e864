"""Fill the index of the words of logs."""

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate

from django.db import connection, transaction
from django.db.models import Q

from apps.archive.domain.search import words as word_rules
from apps.core.domain.work import BackOff, Queue
from apps.search.domain.logs.kept_texts import READERS, KeptLog, texts_of
from apps.search.models import LogIndex, LogToIndex, LogWords

#: A log with more words than a row can hold has this one, and is always read.
CUT = "@cut"
_HOUR_SECONDS = 3600
BATCH = 100
#: Waiting logs are indexed so many at a time, and each at most so often if it kills its worker.
WAITING_BATCH = 25
MOST_ATTEMPTS = 5
LOGS_TO_INDEX = Queue(
    name="logs_to_index",
    title="Logs for the search",
    model=LogToIndex,
    unfinished_rows=Q(),
    back_off=BackOff((60, 600)),
    lease=timedelta(minutes=5),
)
_STORE = """
INSERT INTO search_logwords (job_id, ended_at, words)
SELECT job, ended_at, array_to_tsvector(string_to_array(words, ' '))
FROM unnest(%s::bigint[], %s::timestamptz[], %s::text[]) AS new (job, ended_at, words)
ON CONFLICT (job_id) DO UPDATE SET ended_at = EXCLUDED.ended_at, words = EXCLUDED.words
"""


def store_words(logs: Sequence[KeptLog]) -> None:
    """Replace the words of these jobs; a job of which nothing is kept loses them."""
    gone = [log.job for log in logs if not log.texts]
    kept = [log for log in logs if log.texts]
    if gone:
        forget_words(gone)
    if not kept:
        return
    rows = []
    for log in sorted(kept, key=lambda log: log.job):
        log_words = words_of_log(log.data) | set(time_words(log.ended_at))
        rows.append((log.job, log.ended_at, " ".join(log_words)))
    with connection.cursor() as cursor:
        cursor.execute(_STORE, [list(column) for column in zip(*rows, strict=True)])


def queue_words(jobs: Iterable[int], *, at: datetime) -> None:
    """Have the words of these jobs' logs replaced by a worker: to find them takes long."""
    rows = [LogToIndex(job_id=job, due_at=at) for job in sorted(jobs)]
    LogToIndex.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["job"],
        update_fields=["due_at", "attempts", "last_error"],
    )


def index_waiting(*, seconds: float, at: datetime) -> int:
    """Index waiting logs until none is left or the time is over; return their number."""
    end = time.monotonic() + seconds
    total = 0
    while count := _index_waiting(at):
        total += count
        if time.monotonic() > end:
            break
    return total


def _index_waiting(at: datetime) -> int:
    """Index a batch of waiting logs; return its size.

    A log that was queued again meanwhile stays queued.
    """
    due = LOGS_TO_INDEX.due(at).select_related("job")
    claimed = LOGS_TO_INDEX.claim_batch(due, most=WAITING_BATCH, at=at)
    with transaction.atomic():
        held = LOGS_TO_INDEX.hold(claimed)
        texts = texts_of([row.job_id for row in held])
        logs = []
        for row in held:
            if row.attempts <= MOST_ATTEMPTS:
                logs.append(KeptLog(row.job_id, row.job.ended_at, texts.get(row.job_id, ())))
        store_words(logs)
        LogToIndex.objects.filter(pk__in=[row.pk for row in held]).delete()
    return len(claimed)


def logs_waiting(*, at_most: int) -> int:
    """Return how many new logs are not in the index yet, counting at most `at_most`."""
    return LogToIndex.objects.all()[:at_most].count()


def forget_words(jobs: Iterable[int]) -> None:
    """Remove the words of jobs whose logs are no longer kept."""
    LogWords.objects.filter(job__in=jobs).delete()


def words_of_log(data: bytes) -> set[str]:
    """Return all words by which a log can be found, and `CUT` if it has more."""
    log_words: set[str] = set()
    # Logs repeat lines, so each is split once.
    for line in set(data.decode("utf-8", "backslashreplace").split("\n")):
        log_words |= word_rules.words_in(line)
    cut = {word[: word_rules.LONGEST_WORD] for word in log_words}
    most_bytes = len(cut) * word_rules.LONGEST_WORD * 4
    if len(cut) <= word_rules.INDEXED_WORDS and most_bytes < word_rules.INDEXED_WORDS_BYTES:
        return cut
    return _first_words(cut)


def _first_words(log_words: set[str]) -> set[str]:
    """Return as many words as a row can hold, with `CUT` if these are not all."""
    kept = sorted(log_words)[: word_rules.INDEXED_WORDS]
    ends = accumulate(len(word.encode()) for word in kept)
    fitting = {
        word for word, end in zip(kept, ends, strict=True) if end < word_rules.INDEXED_WORDS_BYTES
    }
    return fitting if len(fitting) == len(log_words) else {*fitting, CUT}


def hour_word(moment: datetime) -> str:
    return f"@h{int(moment.timestamp()) // _HOUR_SECONDS}"


def time_words(ended_at: datetime) -> list[str]:
    """Return the index words of hour, day and week of a time."""
    day = ended_at.astimezone(UTC).date()
    return [hour_word(ended_at), word_rules.day_word(day), *word_rules.week_words(day, day)]


def index_kept_logs(*, batches: int, at: datetime) -> int:
    """Index logs that were kept before the index existed, newest first; return their number.

    Safe to repeat or to interrupt, and safe beside running work: one batch is one transaction.
    """
    LogIndex.objects.get_or_create(pk=1)
    indexed = 0
    for _ in range(batches):
        count = _index_batch(at)
        if count is None:
            break
        indexed += count
    return indexed


@transaction.atomic
def _index_batch(at: datetime) -> int | None:
    """Index the next logs; return their number, None if there are none or another process does."""
    index = LogIndex.objects.select_for_update(skip_locked=True).filter(pk=1).first()
    if index is None or index.complete:
        return None
    batch = _next_logs(index.indexed_from)
    store_words([log for _, log in batch])
    index.complete = not batch
    if batch:
        index.indexed_from = min(key for key, _ in batch)
    index.indexed_at = at
    index.save()
    return len(batch)


def _next_logs(key: int | None) -> Sequence[tuple[int, KeptLog]]:
    for reader in READERS.working().values():
        if batch := reader.before(key, BATCH):
            return batch
    return ()


def rebuild_index() -> None:
    """Let the index be filled again from what is kept; searches go on meanwhile."""
    LogIndex.objects.update_or_create(
        pk=1, defaults={"indexed_from": None, "complete": False, "indexed_at": None}
    )


def is_complete() -> bool:
    """Return whether all kept logs are in the index."""
    index = LogIndex.objects.filter(pk=1).first()
    return index is not None and index.complete
