"""Celery tasks: parse payloads, mark stale incidents and gaps, delete old payloads."""

import time

from celery import shared_task
from django.utils import timezone

from apps.core.domain.background import enqueue
from apps.statusboard.domain.monitoring import alerts, pulls, rules, sources, trials
from apps.statusboard.domain.monitoring.payloads import PAYLOADS, parse_waiting_payload
from apps.statusboard.models import MonitoringSource

#: A worker parses payloads for at most `TURN_SECONDS`; then other tasks get a turn. It checks the
#: clock after every `BATCH`.
TURN_SECONDS = 20
BATCH = 100


@shared_task(name="statusboard.parse_waiting")
def parse_waiting() -> None:
    """Parse waiting payloads, the longest waiting first. Workers share them."""
    ends = time.monotonic() + TURN_SECONDS
    while pks := list(PAYLOADS.due(timezone.now()).values_list("pk", flat=True)[:BATCH]):
        parsed = 0
        for pk in pks:
            parsed += parse_waiting_payload(payload_id=pk, at=timezone.now())
        if not parsed:
            # Another worker has these payloads, or they are to be retried later.
            return
        if time.monotonic() > ends:
            enqueue("statusboard.parse_waiting")
            return


@shared_task(name="statusboard.replay")
def replay(*, source_id: int) -> None:
    if source := MonitoringSource.objects.filter(pk=source_id).first():
        rules.replay_payloads(source=source)


@shared_task(name="statusboard.pull_all")
def pull_all() -> None:
    pulls.pull_all()


@shared_task(name="statusboard.pull_source")
def pull_source(*, source_id: int) -> None:
    pulls.pull_source(source_id=source_id)


@shared_task(name="statusboard.try_fetch")
def try_fetch(*, source_id: int) -> None:
    trials.try_fetch(source_id=source_id)


@shared_task(name="statusboard.mark_stale")
def mark_stale() -> None:
    """Mark stale incidents and record gaps of sources without heartbeats."""
    now = timezone.now()
    alerts.mark_stale_incidents(at=now)
    sources.record_gaps(at=now)


@shared_task(name="statusboard.delete_old_payloads")
def delete_old_payloads() -> None:
    rules.delete_old_payloads(at=timezone.now())
