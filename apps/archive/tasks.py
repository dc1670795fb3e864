"""Celery tasks of the archive."""

from celery import shared_task
from django.utils import timezone

from apps.archive import masking_rules


@shared_task(acks_late=True)
def try_masking_rule(*, trial_id: int) -> None:
    masking_rules.continue_trial(trial_id=trial_id, at=timezone.now())


@shared_task
def continue_lost_trials() -> None:
    masking_rules.continue_lost_trials(at=timezone.now())
