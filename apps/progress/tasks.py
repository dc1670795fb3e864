"""Celery tasks: moving requests as their jobs progress, forecasts and attention, counts for estimates and shares."""

from celery import shared_task
from django.utils import timezone

from apps.core.tasks import task_of
from apps.progress.domain import attention, forecast, share_use, stage_history, transitions, weekly_report

task_of(stage_history.count_changed)
task_of(share_use.count_share_use)
task_of(forecast.keep_forecasts)


@shared_task
def follow_requests() -> None:
    transitions.follow_requests(at=timezone.now())
    forecast.note_starts(at=timezone.now())
    attention.note_attention(at=timezone.now())


@shared_task
def freeze_weekly_reports() -> None:
    weekly_report.freeze_weekly_reports(at=timezone.now())
