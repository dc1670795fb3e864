"""Celery tasks: reading payloads, and what the clock alone brings."""

from datetime import timedelta

from celery import shared_task
from django.utils import timezone

from apps.statusboard.domain import alerts, payloads, rules, sources
from apps.statusboard.enums import PayloadState
from apps.statusboard.models import MonitoringSource, RawPayload


@shared_task
def parse_payload(*, payload_id: int) -> None:
    payloads.parse_payload(payload_id=payload_id)


@shared_task
def parse_waiting() -> None:
    """Read payloads whose message was lost with a broker or a worker."""
    late = timezone.now() - timedelta(seconds=10)
    waiting = RawPayload.objects.filter(state=PayloadState.RECEIVED, received_at__lt=late).order_by("received_at", "pk")
    for pk in list(waiting.values_list("pk", flat=True)[:1000]):
        payloads.parse_payload(payload_id=pk)


@shared_task
def replay(*, source_id: int) -> None:
    if source := MonitoringSource.objects.filter(pk=source_id).first():
        rules.replay_payloads(source=source)


@shared_task
def watch_clock() -> None:
    """Say what has become unknown: incidents not heard of any more, and sources that fell silent."""
    now = timezone.now()
    alerts.mark_stale_incidents(at=now)
    sources.record_gaps(at=now)


@shared_task
def drop_old_payloads() -> None:
    rules.drop_old_payloads(at=timezone.now())
