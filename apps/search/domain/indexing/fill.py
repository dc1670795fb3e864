"""Fill an index with the logs that were kept before it existed, and replace an index by another."""

import logging
from datetime import datetime

from django.db import transaction

from apps.search.domain.engine.base import Engine, SearchUnavailable
from apps.search.domain.engine.chosen import engine_in_use
from apps.search.domain.indexing.new_logs import logs_waiting, queue_words
from apps.search.domain.logs import index_state
from apps.search.domain.logs.kept_texts import newest_before
from apps.search.models import LogIndex

log = logging.getLogger(__name__)

BATCH = 100


def index_kept_logs(*, batches: int, at: datetime) -> int:
    """Index logs that were kept before the index existed, newest first; return their number.

    An index with an old layout is rebuilt. Safe to repeat or to interrupt, and safe beside running
    work: one batch is one transaction. Raises `SearchUnavailable`.
    """
    engine = engine_in_use()
    index = index_state.first_index(engine.name, layout=engine.layout)
    if index.layout != engine.layout:
        index_state.start_rebuild(engine.name, layout=engine.layout)
    indexed = 0
    try:
        for _ in range(batches):
            count = _index_batch(engine, at)
            if count is None:
                break
            indexed += count
    except SearchUnavailable as error:
        index_state.note_failure(engine.name, error.reason, at=at)
        raise
    return indexed


@transaction.atomic
def _index_batch(engine: Engine, at: datetime) -> int | None:
    """Index the next logs; return their number, None if there are none or another process does."""
    log_indexes = LogIndex.objects.select_for_update(skip_locked=True).filter(target=engine.name)
    # First one that replaces another: that may be broken.
    index = log_indexes.filter(complete=False).order_by("serving").first()
    if index is None:
        return None
    batch = newest_before(index.indexed_from, BATCH)
    if not batch:
        _complete(engine, index)
        return 0
    refused = engine.store([kept_log for _, kept_log in batch], only=index)
    queue_words(refused, at=at)
    index.indexed_from = min(key for key, _ in batch)
    index.indexed += len(batch)
    index.indexed_at = at
    index.save(update_fields=["indexed_from", "indexed", "indexed_at"])
    return len(batch)


def _complete(engine: Engine, index: LogIndex) -> None:
    engine.finish(index)
    index.complete = True
    index.save(update_fields=["complete"])
    if not index.serving:
        index_state.put_in_use(index)
        transaction.on_commit(lambda: _clean_up(engine))


def _clean_up(engine: Engine) -> None:
    try:
        engine.clean_up()
    except SearchUnavailable as error:
        log.warning("replaced indexes of %s are still there: %s", engine.name, error.reason)


def rebuild_index() -> LogIndex:
    """Have a new index filled beside the one in use, which it replaces when it is full.

    Continues with one that was begun.
    """
    engine = engine_in_use()
    return index_state.start_rebuild(engine.name, layout=engine.layout)


def is_being_built(index: LogIndex) -> bool:
    """Return whether an index still waits to be put in use."""
    return LogIndex.objects.filter(pk=index.pk, serving=False).exists()


def check_index(*, at: datetime) -> None:
    """Check that the index answers as a whole, for the health page, and remove what is old."""
    engine = engine_in_use()
    try:
        engine.check()
        engine.clean_up()
    except SearchUnavailable as error:
        index_state.note_failure(engine.name, error.reason, at=at)
    else:
        # Whether it takes logs, as one with a full disk does not, is seen by those that wait.
        if not logs_waiting(at_most=1):
            index_state.note_success(engine.name)
