"""Process payloads of monitoring sources into incidents: store first, parse later, both repeatable."""

import hashlib
from collections.abc import Mapping
from datetime import datetime

from django.db import OperationalError, transaction
from django.db.models import F

from apps.core.domain.background import enqueue
from apps.core.domain.plugins import UnknownPlugin
from apps.statusboard.domain.alerts import record_episode
from apps.statusboard.domain.history import rebuild
from apps.statusboard.domain.sources import record_heartbeat
from apps.statusboard.enums import PayloadState, State
from apps.statusboard.feeds.base import Alert, Message, Status, UnreadablePayload
from apps.statusboard.feeds.registry import FEEDS
from apps.statusboard.models import LabelRule, MonitoringSource, RawPayload, Service, UnmappedAlert


@transaction.atomic
def receive_payload(*, source: MonitoringSource, body: bytes, at: datetime) -> RawPayload:
    """Store a payload and queue its parsing."""
    payload = RawPayload.objects.create(
        source=source, received_at=at, sha256=hashlib.sha256(body).hexdigest(), body=body
    )
    enqueue("apps.statusboard.tasks.parse_payload", payload_id=payload.pk)
    return payload


def parse_payload(*, payload_id: int, again: bool = False) -> RawPayload | None:
    """Parse a payload into incidents; problems are noted on the payload.

    Does nothing if it is already parsed, unless `again`: that is safe, and applies the current rules.
    """
    with transaction.atomic():
        waiting = RawPayload.objects.select_for_update(of=("self",)).select_related("source").filter(pk=payload_id)
        if not again:
            waiting = waiting.filter(state=PayloadState.RECEIVED)
        payload = waiting.first()
        if payload is None:
            return None
        try:
            feed = FEEDS.get(payload.source.feed)()
            message = feed.parse(bytes(payload.body))
            with transaction.atomic():
                payload.unmapped = apply_message(source=payload.source, message=message, at=payload.received_at)
        except (UnreadablePayload, UnknownPlugin) as error:
            payload.state, payload.notes = PayloadState.FAILED, str(error) or type(error).__name__
        except OperationalError:  # not the payload's fault (deadlock, lost connection): keep it for a retry
            raise
        except Exception as error:  # a third party's format, or a value the database rejects: keep it for a replay
            payload.state, payload.notes = PayloadState.FAILED, f"{type(error).__name__}: {error}"
        else:
            payload.state, payload.notes = PayloadState.PARSED, "\n".join(message.notes)
        payload.notes = payload.notes.replace("\0", "")[:2000]
        payload.save(update_fields=["state", "notes", "unmapped"])
        return payload


@transaction.atomic
def apply_message(*, source: MonitoringSource, message: Message, at: datetime) -> int:
    """Update incidents and coverage from a message received at `at`; return the number of unmapped alerts.

    Idempotent, and the order of messages does not matter.
    """
    source = MonitoringSource.objects.select_for_update(no_key=True).get(pk=source.pk)
    changed: set[int] = set()
    since = [at]
    heartbeat = any(alert.status is Status.HEARTBEAT for alert in message.alerts)
    if covered_since := record_heartbeat(source=source, heartbeat=heartbeat, at=at):
        changed.update(source.services.values_list("pk", flat=True))
        since.append(covered_since)
    rules = list(LabelRule.objects.filter(source=source).select_related("service"))
    slugs = {alert.labels["service"] for alert in message.alerts if alert.labels.get("service")}
    by_slug = {service.slug: service for service in Service.objects.filter(slug__in=slugs)}
    unmapped = 0
    for alert in message.alerts:
        if alert.status is Status.HEARTBEAT:
            continue
        mapped, service, state = _map(alert, rules, by_slug)
        if not mapped:
            unmapped += 1
            _record_unmapped(source, alert, at)
        elif service is not None:
            changed |= record_episode(source=source, alert=alert, service=service, state=state, at=at)
            since.append(alert.started_at)
    if changed:
        rebuild(service_ids=changed, since=min(since))
    return unmapped


def _map(alert: Alert, rules: list[LabelRule], by_slug: Mapping[str, Service]) -> tuple[bool, Service | None, State]:
    """Return whether the alert is mapped, its service (None: ignored), and its state."""
    state = State.DOWN if alert.severity == "critical" else State.DEGRADED
    for rule in rules:
        if all(alert.labels.get(name) == value for name, value in rule.matchers.items()):
            return True, rule.service, State(rule.state) if rule.state else state
    service = by_slug.get(alert.labels.get("service", ""))
    return service is not None, service, state


def _record_unmapped(source: MonitoringSource, alert: Alert, at: datetime) -> None:
    row, created = UnmappedAlert.objects.get_or_create(
        source=source,
        dedup_key=alert.dedup_key,
        defaults={"labels": dict(alert.labels), "title": alert.title[:200], "last_seen_at": at, "count": 1},
    )
    if not created and row.last_seen_at < at:
        UnmappedAlert.objects.filter(pk=row.pk).update(count=F("count") + 1, last_seen_at=at)
