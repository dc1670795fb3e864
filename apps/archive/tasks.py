"""Celery tasks of the archive."""

from celery import shared_task
from django.utils import timezone

from apps.archive import masking_rules, word_index

#: Words are indexed for no longer than this at a time, so that other tasks get their turn.
INDEX_SECONDS = 8


@shared_task(acks_late=True)
def try_masking_rule(*, trial_id: int) -> None:
    masking_rules.continue_trial(trial_id=trial_id, at=timezone.now())


@shared_task
def continue_lost_trials() -> None:
    masking_rules.continue_lost_trials(at=timezone.now())


@shared_task
def index_words() -> None:
    word_index.index_for(seconds=INDEX_SECONDS, at=timezone.now())
