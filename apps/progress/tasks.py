"""Celery tasks: moving requests as their jobs progress, and counting jobs for estimates and shares."""

from celery import shared_task
from django.utils import timezone

from apps.core.tasks import task_of
from apps.progress.domain import share_use, stage_history, stuck, transitions

task_of(stage_history.count_changed)
task_of(share_use.count_share_use)


@shared_task
def follow_requests() -> None:
    transitions.follow_requests(at=timezone.now())
    stuck.note_stuck(at=timezone.now())
