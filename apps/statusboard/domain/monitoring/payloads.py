"""Process payloads of monitoring sources into incidents.

Payloads are stored first and parsed later; both steps can be repeated.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import OperationalError, transaction
from django.db.models import F, Q

from apps.core.domain.background import enqueue
from apps.core.domain.plugins import UnknownPlugin
from apps.core.domain.work import BackOff, Queue
from apps.statusboard.domain.maintenance.windows import cancel_missing, record_window
from apps.statusboard.domain.monitoring.alerts import (
    close_missing,
    record_early_end,
    record_episode,
)
from apps.statusboard.domain.monitoring.sources import record_heartbeat
from apps.statusboard.domain.states.history import rebuild
from apps.statusboard.domain.states.timeline import BEGINNING
from apps.statusboard.enums import PayloadState, State
from apps.statusboard.feeds.base import Alert, Message, Status, UnreadablePayload, Window
from apps.statusboard.feeds.registry import FEEDS
from apps.statusboard.models import (
    Incident,
    LabelRule,
    MonitoringSource,
    RawPayload,
    Service,
    UnmappedAlert,
)

#: A source's windows are ignored if they ended longer ago than `OLD` or start later than `AHEAD`.
OLD = timedelta(days=30)
AHEAD = timedelta(days=400)


#: A worker holds a payload for as long as it parses it.
PAYLOADS = Queue(
    name="payloads",
    title="Monitoring payloads",
    model=RawPayload,
    unfinished_rows=Q(state=PayloadState.RECEIVED),
    back_off=BackOff((10, 30, 120, 600)),
)


@transaction.atomic
def receive_payload(*, source: MonitoringSource, body: bytes, at: datetime) -> RawPayload:
    """Store a payload and queue its parsing."""
    payload = RawPayload.objects.create(
        source=source,
        received_at=at,
        due_at=at,
        sha256=hashlib.sha256(body).hexdigest(),
        body=body,
    )
    enqueue("statusboard.parse_waiting")
    return payload


def parse_waiting_payload(*, payload_id: int, at: datetime) -> bool:
    """Parse a payload that waits; False if another worker has it, or if it is to be retried."""
    waiting = PAYLOADS.due(at).filter(pk=payload_id).select_related("source")
    return PAYLOADS.process(waiting, _parse, at=at) is not None


@transaction.atomic
def parse_payload(*, payload_id: int) -> RawPayload | None:
    """Parse a payload now, for the first time or again; the current rules apply.

    Returns None if the payload has been deleted.
    """
    payloads = RawPayload.objects.select_for_update(of=("self",)).select_related("source")
    payload = payloads.filter(pk=payload_id).first()
    if payload is not None:
        _parse(payload)
    return payload


def _parse(payload: RawPayload) -> None:
    """Parse a locked payload into incidents; problems are noted on the payload."""
    try:
        message = read_payload(payload)
        with transaction.atomic():
            payload.unmapped = apply_message(
                source=payload.source, message=message, at=payload.received_at
            )
    except (UnreadablePayload, UnknownPlugin) as error:
        payload.state = PayloadState.FAILED
        payload.notes = str(error) or type(error).__name__
    except OperationalError:
        # A deadlock or lost connection is not the payload's fault: keep it for a retry.
        raise
    except Exception as error:
        # A third-party format may raise anything, and the database may reject a value: keep the
        # payload for a replay.
        payload.state = PayloadState.FAILED
        payload.notes = f"{type(error).__name__}: {error}"
    else:
        payload.state = PayloadState.PARSED
        payload.notes = "\n".join(message.notes)
    payload.notes = payload.notes.replace("\0", "")[:2000]
    payload.last_error = ""
    payload.save(update_fields=["state", "notes", "unmapped", "last_error"])


def read_payload(payload: RawPayload, mapping: Mapping[str, str] | None = None) -> Message:
    """Parse a stored payload with its source's mapping or another one.

    Raises `UnreadablePayload`, `UnknownPlugin`.
    """
    feed = FEEDS.get(payload.source.feed)(payload.source.mapping if mapping is None else mapping)
    return feed.parse(bytes(payload.body))


@transaction.atomic
def apply_message(*, source: MonitoringSource, message: Message, at: datetime) -> int:
    """Update incidents and coverage from a message received at `at`.

    Return the number of unmapped alerts. Idempotent; the order of messages does not matter.
    """
    source = MonitoringSource.objects.select_for_update(no_key=True).get(pk=source.pk)
    changed: set[int] = set()
    since = [at]
    heartbeat = any(alert.status is Status.HEARTBEAT for alert in message.alerts)
    if covered_since := record_heartbeat(source=source, heartbeat=heartbeat, at=at):
        changed.update(source.services.values_list("pk", flat=True))
        since.append(covered_since)
    rules = list(LabelRule.objects.filter(source=source).select_related("service"))
    reported: tuple[Alert | Window, ...] = (*message.alerts, *message.windows)
    slugs = {report.labels["service"] for report in reported if report.labels.get("service")}
    by_slug = {service.slug: service for service in Service.objects.filter(slug__in=slugs)}

    unmapped = 0
    for alert in message.alerts:
        if alert.status is Status.HEARTBEAT:
            continue
        mapped, service, state = map_report(alert, rules, by_slug)
        if not mapped and alert.status is Status.RESOLVED and alert.started_at is None:
            # An end without labels belongs to the service that the alert was mapped to.
            mapped = True
            service, state = _ended_incident(source, alert, at)
        if not mapped:
            unmapped += 1
            _record_unmapped(source, alert, at)
        elif service is not None:
            changed |= record_episode(
                source=source, alert=alert, service=service, state=state, at=at
            )
            since.append(alert.started_at or alert.reported_at or alert.ended_at or at)

    changed_by_windows, left = _apply_windows(source, message, rules, by_slug, at)
    unmapped += left
    changed |= changed_by_windows
    if changed_by_windows:
        since.append(BEGINNING)
    if message.is_complete:
        keys = {alert.dedup_key for alert in message.alerts}
        made_at = min(at, message.as_of or at)
        changed |= close_missing(source=source, reported=keys, at=made_at)
        since.append(made_at)

    if changed:
        rebuild(service_ids=changed, since=min(since))
    return unmapped


def _ended_incident(
    source: MonitoringSource, alert: Alert, at: datetime
) -> tuple[Service | None, State]:
    """Return service and state of the alert's latest incident.

    Without an incident, keep the end of the alert for later.
    """
    known = (
        Incident.objects.filter(source=source, dedup_key=alert.dedup_key)
        .select_related("service")
        .last()
    )
    if known is None:
        record_early_end(source=source, alert=alert, at=at)
        return None, State.UNKNOWN
    return known.service, State(known.state)


def _apply_windows(
    source: MonitoringSource,
    message: Message,
    rules: list[LabelRule],
    by_slug: Mapping[str, Service],
    at: datetime,
) -> tuple[set[int], int]:
    """Create, change and cancel windows.

    Return the primary keys of the services that changed, and the number of unmapped windows.
    """
    changed: set[int] = set()
    unmapped = 0
    kept = set()
    for window in message.windows:
        if (
            window.ends_at <= at - OLD
            or window.starts_at > at + AHEAD
            or window.ends_at <= window.starts_at
        ):
            continue
        mapped = map_report(window, rules, by_slug)
        if not mapped.is_mapped:
            unmapped += 1
            _record_unmapped(source, window, at)
        elif mapped.service is not None:
            kept.add(window.key)
            changed |= record_window(source=source, window=window, service=mapped.service, at=at)
    if message.is_complete:
        changed |= cancel_missing(source=source, kept=kept, at=at)
    return changed, unmapped


class MappedReport(NamedTuple):
    """What the rules make of an alert. A mapped alert without a service is ignored."""

    is_mapped: bool
    service: Service | None
    state: State


def map_report(
    alert: Alert | Window, rules: list[LabelRule], by_slug: Mapping[str, Service]
) -> MappedReport:
    """Return the service and state of an alert: of the first rule that matches its labels.

    Without one, the label `service` names the service.
    """
    critical = isinstance(alert, Alert) and alert.severity == "critical"
    state = State.DOWN if critical else State.DEGRADED
    for rule in rules:
        if all(alert.labels.get(name) == value for name, value in rule.matchers.items()):
            return MappedReport(True, rule.service, State(rule.state) if rule.state else state)
    service = by_slug.get(alert.labels.get("service", ""))
    return MappedReport(service is not None, service, state)


def _record_unmapped(source: MonitoringSource, alert: Alert | Window, at: datetime) -> None:
    unmapped, created = UnmappedAlert.objects.get_or_create(
        source=source,
        dedup_key=alert.dedup_key if isinstance(alert, Alert) else alert.key,
        defaults={
            "labels": dict(alert.labels),
            "title": alert.title[:200],
            "last_seen_at": at,
            "count": 1,
        },
    )
    if not created and unmapped.last_seen_at < at:
        UnmappedAlert.objects.filter(pk=unmapped.pk).update(count=F("count") + 1, last_seen_at=at)


@dataclass(frozen=True)
class Trial:
    """The content that a mapping finds in a stored payload, or why the payload cannot be parsed."""

    payload: RawPayload
    message: Message | None
    error: str = ""


def try_mapping(
    *, source: MonitoringSource, mapping: Mapping[str, str], most: int = 10
) -> list[Trial]:
    """Parse the latest stored payloads of a source with another mapping, newest first."""
    trials = []
    for payload in RawPayload.objects.filter(source=source).select_related("source")[:most]:
        try:
            trials.append(Trial(payload, read_payload(payload, mapping)))
        except (UnreadablePayload, UnknownPlugin) as error:
            trials.append(Trial(payload, None, str(error)))
    return trials
