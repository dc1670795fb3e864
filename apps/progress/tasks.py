"""Celery tasks: moves that follow from jobs, forecasts, attention, counts for estimates."""

from celery import shared_task
from django.utils import timezone

from apps.production.domain.priority.free_clusters import store_free_clusters
from apps.progress.domain import (
    needs,
    share_use,
    stage_history,
    stored_forecasts,
    transitions,
    weekly_report,
)


@shared_task(name="progress.count_stage_history")
def count_stage_history() -> None:
    stage_history.count_changed(at=timezone.now())


@shared_task(name="progress.count_share_use")
def count_share_use() -> None:
    share_use.count_share_use(at=timezone.now())
    share_use.count_work_by_day(at=timezone.now())


@shared_task(name="progress.keep_forecasts")
def keep_forecasts() -> None:
    stored_forecasts.keep_forecasts(at=timezone.now())


@shared_task(name="progress.follow_requests")
def follow_requests() -> None:
    transitions.follow_requests(at=timezone.now())
    store_free_clusters(stored_forecasts.note_starts(at=timezone.now()))
    needs.note_attention(at=timezone.now())


@shared_task(name="progress.freeze_weekly_reports")
def freeze_weekly_reports() -> None:
    weekly_report.freeze_weekly_reports(at=timezone.now())
