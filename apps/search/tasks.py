"""Celery tasks of the search."""

from celery import shared_task
from django.utils import timezone

from apps.search.domain import line_totals, new_lines
from apps.search.domain.logs import word_index

#: New logs are indexed for so long at a time.
INDEX_SECONDS = 5


@shared_task(name="search.recount_lines")
def recount_lines() -> None:
    line_totals.recount_dirty_hours()


@shared_task(name="search.announce_new_lines")
def announce_new_lines() -> None:
    new_lines.announce_spread(at=timezone.now())


@shared_task(name="search.index_kept_logs")
def index_kept_logs() -> None:
    word_index.index_kept_logs(batches=20, at=timezone.now())


@shared_task(name="search.index_new_logs")
def index_new_logs() -> None:
    word_index.index_waiting(seconds=INDEX_SECONDS, at=timezone.now())
