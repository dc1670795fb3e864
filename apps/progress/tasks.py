"""Celery tasks: moving requests on as their jobs do, and counting what they took for production."""

from celery import shared_task
from django.utils import timezone

from apps.progress.domain import share_use, stage_history, stuck, transitions


@shared_task
def count_stage_history() -> None:
    """Count what the jobs of requests took, where they have changed; estimates rest on it."""
    stage_history.count_changed(at=timezone.now())


@shared_task
def follow_requests() -> None:
    """Move requests on as their jobs do, and note whose jobs wait for a person."""
    transitions.follow_requests(at=timezone.now())
    stuck.note_stuck(at=timezone.now())


@shared_task
def count_share_use() -> None:
    """Sum what each experiment used of production lately."""
    share_use.count_share_use(at=timezone.now())
