"""Celery tasks: moving requests as their jobs progress, and counting jobs for estimates and shares."""

from celery import shared_task
from django.utils import timezone

from apps.progress.domain import share_use, stage_history, stuck, transitions


@shared_task
def count_stage_history() -> None:
    stage_history.count_changed(at=timezone.now())


@shared_task
def follow_requests() -> None:
    transitions.follow_requests(at=timezone.now())
    stuck.note_stuck(at=timezone.now())


@shared_task
def count_share_use() -> None:
    share_use.count_share_use(at=timezone.now())
