"""Celery tasks of the search."""

from celery import shared_task

from apps.search.domain import totals


@shared_task(name="search.recount_lines")
def recount_lines() -> None:
    totals.recount_dirty_hours()
