"""Celery tasks: deleting old idempotency keys."""

from apps.api import domain
from apps.core.tasks import task_of

drop_old_calls = task_of(domain.drop_old_calls)
