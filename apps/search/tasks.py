"""Celery tasks of the search."""

import logging

from celery import shared_task
from django.utils import timezone

from apps.search.domain import line_totals, new_lines
from apps.search.domain.engine.base import SearchUnavailable
from apps.search.domain.indexing import fill, new_logs

log = logging.getLogger(__name__)

#: How long a task indexes new logs.
INDEX_SECONDS = 5


@shared_task(name="search.recount_lines")
def recount_lines() -> None:
    line_totals.recount_dirty_hours()


@shared_task(name="search.announce_new_lines")
def announce_new_lines() -> None:
    new_lines.announce_spread(at=timezone.now())


@shared_task(name="search.index_kept_logs")
def index_kept_logs() -> None:
    try:
        fill.index_kept_logs(batches=20, at=timezone.now())
    except SearchUnavailable as error:
        log.warning("older logs cannot be indexed: %s", error.reason)
    else:
        fill.check_index(at=timezone.now())


@shared_task(name="search.index_new_logs")
def index_new_logs() -> None:
    new_logs.index_waiting(seconds=INDEX_SECONDS, at=timezone.now())
