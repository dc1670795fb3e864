"""Celery tasks: parse payloads, mark stale incidents and gaps, delete old payloads."""

from datetime import timedelta

from celery import shared_task
from django.utils import timezone

from apps.core.tasks import task_of
from apps.statusboard.domain import alerts, payloads, rules, sources
from apps.statusboard.enums import PayloadState
from apps.statusboard.models import MonitoringSource, RawPayload


@shared_task
def parse_payload(*, payload_id: int) -> None:
    payloads.parse_payload(payload_id=payload_id)


@shared_task
def parse_waiting() -> None:
    """Parse payloads whose message was lost by the broker or a worker."""
    late = timezone.now() - timedelta(seconds=10)
    waiting = RawPayload.objects.filter(state=PayloadState.RECEIVED, received_at__lt=late).order_by("received_at", "pk")
    for pk in list(waiting.values_list("pk", flat=True)[:1000]):
        payloads.parse_payload(payload_id=pk)


@shared_task
def replay(*, source_id: int) -> None:
    if source := MonitoringSource.objects.filter(pk=source_id).first():
        rules.replay_payloads(source=source)


@shared_task
def mark_stale() -> None:
    """Mark stale incidents and record gaps of sources without heartbeats."""
    now = timezone.now()
    alerts.mark_stale_incidents(at=now)
    sources.record_gaps(at=now)


task_of(rules.delete_old_payloads)
