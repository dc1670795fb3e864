"""Monitoring sources: create them, manage their tokens, and record heartbeats and gaps."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Count, Exists, OuterRef, QuerySet

from apps.accounts.models import Principal
from apps.core.domain.background import enqueue
from apps.core.domain.events import publish
from apps.core.domain.tokens import hash_of, new_token
from apps.core.errors import InvalidFields
from apps.statusboard.domain.monitoring import source_tokens
from apps.statusboard.domain.monitoring.source_fetch import check_pull
from apps.statusboard.domain.states.history import rebuild
from apps.statusboard.domain.states.timeline import Span, add_heartbeat
from apps.statusboard.feeds.registry import FEEDS
from apps.statusboard.models import (
    Incident,
    MonitoringGap,
    MonitoringSource,
    RawPayload,
    Service,
)

#: How long a payload that could not be parsed counts as a fault of its source.
FAULT = timedelta(hours=24)


@transaction.atomic
def create_source(
    *,
    slug: str,
    by: Principal,
    at: datetime,
    name: str = "",
    feed: str = "alertmanager",
    heartbeat_timeout_seconds: int = 900,
    lease_seconds: int = 3600,
    monitored_since: datetime | None = None,
    pull_url: str = "",
) -> tuple[MonitoringSource, str]:
    """Create a source; return it and its token, of which only a hash is stored.

    Raises `InvalidFields`.
    """
    problems: dict[str, list[str]] = {}
    if feed not in FEEDS.names():
        problems["feed"] = [f"Unknown feed “{feed}”. Choose one of: {', '.join(FEEDS.names())}."]
    if MonitoringSource.objects.filter(slug=slug).exists():
        problems["slug"] = [f"Source “{slug}” already exists."]
    if problems:
        raise InvalidFields(problems)
    if pull_url:
        check_pull(feed=feed, url=pull_url)
    since = monitored_since or at
    source = MonitoringSource.objects.create(
        slug=slug,
        name=name or slug,
        feed=feed,
        heartbeat_timeout_seconds=heartbeat_timeout_seconds,
        lease_seconds=lease_seconds,
        monitored_since=since,
        covered_until=since,
        pull_url=pull_url,
    )
    publish(kind="source.created", target=source, by=by, at=at, new=feed)
    return source, add_token(source=source, by=by, at=at)


@transaction.atomic
def add_token(
    *, source: MonitoringSource, by: Principal, at: datetime, revoke_others: bool = False
) -> str:
    """Create a token for a source and return it; `revoke_others` revokes its other tokens."""
    token = new_token()
    locked = MonitoringSource.objects.select_for_update(no_key=True).get(pk=source.pk)
    locked.token_hashes = [hash_of(token), *([] if revoke_others else locked.token_hashes)]
    locked.save(update_fields=["token_hashes"])
    source.token_hashes = locked.token_hashes
    publish(
        kind="source.token_added",
        target=locked,
        by=by,
        at=at,
        data={"revoked_others": revoke_others},
    )
    source_tokens.TOKENS.read_now()
    return token


@transaction.atomic
def revoke_older_tokens(*, source: MonitoringSource, by: Principal, at: datetime) -> int:
    """Revoke all tokens of a source but the newest; return how many."""
    locked = MonitoringSource.objects.select_for_update(no_key=True).get(pk=source.pk)
    count = len(locked.token_hashes) - 1
    if count <= 0:
        return 0
    locked.token_hashes = locked.token_hashes[:1]
    locked.save(update_fields=["token_hashes"])
    publish(kind="source.tokens_revoked", target=locked, by=by, at=at, data={"count": count})
    source_tokens.TOKENS.read_now()
    return count


@transaction.atomic
def set_mapping(
    *, source: MonitoringSource, mapping: Mapping[str, str], by: Principal, at: datetime
) -> None:
    """Set the mapping of a source's payloads and reprocess the payloads that failed."""
    MonitoringSource.objects.filter(pk=source.pk).update(mapping=dict(mapping))
    publish(
        kind="source.mapped",
        target=source,
        by=by,
        at=at,
        data={"old": source.mapping, "new": dict(mapping)},
    )
    enqueue("statusboard.replay", source_id=source.pk)


def record_heartbeat(*, source: MonitoringSource, heartbeat: bool, at: datetime) -> datetime | None:
    """Record a payload as a heartbeat of a source whose row is locked.

    Return the time from which to rebuild its services; None if it does not count. Once a source
    has sent a heartbeat, other payloads no longer count as heartbeats: Alertmanager keeps sending,
    and resolves all alerts, when the Prometheus behind it is down.
    """
    source.last_seen_at = max(source.last_seen_at or at, at)
    source.sends_heartbeats = source.sends_heartbeats or heartbeat
    since = None
    if heartbeat or not source.sends_heartbeats:
        since = min(at, source.covered_until)
        _cover(source, Span(at, at + timedelta(seconds=source.heartbeat_timeout_seconds)), at)
    source.save(update_fields=["last_seen_at", "sends_heartbeats", "covered_until"])
    return since


def _cover(source: MonitoringSource, covered: Span, at: datetime) -> None:
    rows = list(MonitoringGap.objects.filter(source=source).overlapping(covered.started_at, None))
    known = [Span(gap.started_at, gap.ended_at) for gap in rows]
    before = source.covered_until
    left, source.covered_until = add_heartbeat(known, before, covered)
    gaps = set(left)
    # A late heartbeat from long ago does not end the current gap.
    if source.covered_until == before:
        gaps |= {span for span in known if span.ended_at is None}

    stale = []
    has_recovered = False
    for gap, span in zip(rows, known, strict=True):
        if span not in gaps:
            stale.append(gap.pk)
            has_recovered |= span.ended_at is None
    MonitoringGap.objects.filter(pk__in=stale).delete()
    MonitoringGap.objects.bulk_create(
        MonitoringGap(source=source, started_at=span.started_at, ended_at=span.ended_at)
        for span in gaps.difference(known)
    )
    if has_recovered and source.covered_until > at:
        publish(kind="source.recovered", target=source, by=str(source), at=at)


@transaction.atomic
def record_gaps(*, at: datetime) -> int:
    """Record one gap for each source whose heartbeat timed out; return their number."""
    recorded = Exists(MonitoringGap.objects.filter(source=OuterRef("pk"), ended_at=None))
    locked = MonitoringSource.objects.select_for_update(no_key=True, skip_locked=True)
    silent = list(locked.filter(~recorded, covered_until__lte=at).order_by("pk"))
    for source in silent:
        MonitoringGap.objects.create(source=source, started_at=source.covered_until)
        publish(kind="source.no_data", target=source, by=str(source), at=at)
    return len(silent)


@transaction.atomic
def rebuild_services_of(*, source: MonitoringSource, since: datetime) -> None:
    """Rebuild the states of all services of this source."""
    rebuild(service_ids=list(source.services.values_list("pk", flat=True)), since=since)


def source_faults(at: datetime) -> dict[int, RawPayload]:
    """Return each source's latest payload of the last day that could not be parsed completely."""
    with_notes = (
        RawPayload.objects.exclude(notes="").filter(received_at__gt=at - FAULT).defer("body")
    )
    latest = (
        with_notes.select_related("source")
        .order_by("source_id", "-received_at", "-pk")
        .distinct("source_id")
    )
    return {payload.source_id: payload for payload in latest}


def sources_with_counts() -> QuerySet[MonitoringSource]:
    """Return the sources with the numbers of their services (`covered`) and unmapped alerts."""
    return MonitoringSource.objects.annotate(
        covered=Count("services", distinct=True), unmapped_alerts=Count("unmapped", distinct=True)
    )


def services_reported_beside(*, source: MonitoringSource) -> QuerySet[Service]:
    """Return the services that a source reports as not up now, although it is not their source."""
    reported = Incident.objects.filter(source=source, ended_at=None).values("service")
    others = Service.objects.filter(pk__in=reported).exclude(source=source)
    return others.order_by("name")


@dataclass(frozen=True)
class SourceState:
    """What is wrong with a source, in two words, and why; both are empty if all is well."""

    source: MonitoringSource
    problem: str = ""
    detail: str = ""


def source_states(*, at: datetime) -> list[SourceState]:
    """Return all sources by name: whether they are heard, fetched and understood."""
    faults = source_faults(at)
    states = []
    for source in MonitoringSource.objects.order_by("name"):
        fault = faults.get(source.pk)
        if source.covered_until <= at:
            state = SourceState(source, "no data")
        elif source.pull_error:
            state = SourceState(source, "not fetched", source.pull_error)
        elif fault:
            state = SourceState(source, "payload not read", fault.notes)
        else:
            state = SourceState(source)
        states.append(state)
    return states
