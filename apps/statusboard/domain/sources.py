"""Monitoring sources: making them, their tokens, and what their signs of life and silence mean."""

import hmac
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Count, Exists, OuterRef, QuerySet

from apps.accounts.models import Principal
from apps.core.domain.events import publish
from apps.core.domain.tokens import hash_of, new_token
from apps.core.errors import InvalidFields
from apps.statusboard.domain.history import rebuild
from apps.statusboard.domain.timeline import Span, hear
from apps.statusboard.feeds.registry import FEEDS
from apps.statusboard.models import (
    MonitoringGap,
    MonitoringSource,
)


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
) -> tuple[MonitoringSource, str]:
    """Make a source; return it with its token, of which only a hash is kept. Raises `InvalidFields`."""
    problems: dict[str, list[str]] = {}
    if feed not in FEEDS.names():
        problems["feed"] = [f"There is no feed “{feed}”. There are: {', '.join(FEEDS.names())}."]
    if MonitoringSource.objects.filter(slug=slug).exists():
        problems["slug"] = [f"There is a source “{slug}” already."]
    if problems:
        raise InvalidFields(problems)
    since = monitored_since or at
    source = MonitoringSource.objects.create(
        slug=slug,
        name=name or slug,
        feed=feed,
        heartbeat_timeout_seconds=heartbeat_timeout_seconds,
        lease_seconds=lease_seconds,
        monitored_since=since,
        covered_until=since,
    )
    publish(kind="source.created", target=source, by=by, at=at, new=feed)
    return source, add_token(source=source, by=by, at=at)


@transaction.atomic
def add_token(*, source: MonitoringSource, by: Principal, at: datetime, revoke_others: bool = False) -> str:
    """Give a source one more token, or one instead of all others; return it."""
    token = new_token()
    row = MonitoringSource.objects.select_for_update(no_key=True).get(pk=source.pk)
    row.token_hashes = [hash_of(token), *([] if revoke_others else row.token_hashes)]
    row.save(update_fields=["token_hashes"])
    source.token_hashes = row.token_hashes
    publish(kind="source.token_added", target=row, by=by, at=at, data={"revoked_others": revoke_others})
    return token


def source_of(*, slug: str, token: str) -> MonitoringSource | None:
    """Return the source of this slug if the token is one of its own; takes as long for a slug that is unknown."""
    source = MonitoringSource.objects.filter(slug=slug).first()
    given = hash_of(token)
    right = [hmac.compare_digest(given, known) for known in (source.token_hashes if source else ["-"])]
    return source if any(right) else None


def record_heartbeat(*, source: MonitoringSource, heartbeat: bool, at: datetime) -> datetime | None:
    """Take note of a payload of a source whose row is locked; return from when on its services are to be rebuilt.

    Once a source has sent a heartbeat, other payloads are no signs of life: Alertmanager goes on talking, and resolves
    everything, when the Prometheus behind it is dead.
    """
    source.last_seen_at = max(source.last_seen_at or at, at)
    source.sends_heartbeats = source.sends_heartbeats or heartbeat
    since = None
    if heartbeat or not source.sends_heartbeats:
        since = min(at, source.covered_until)
        _cover(source, Span(at, at + timedelta(seconds=source.heartbeat_timeout_seconds)), at)
    source.save(update_fields=["last_seen_at", "sends_heartbeats", "covered_until"])
    return since


def _cover(source: MonitoringSource, heard: Span, at: datetime) -> None:
    rows = list(MonitoringGap.objects.filter(source=source).overlapping(heard.started_at, None))
    before = source.covered_until
    spans, source.covered_until = hear([Span(row.started_at, row.ended_at) for row in rows], before, heard)
    wanted = set(spans)
    if source.covered_until == before:  # a late word of long ago does not end the silence of now
        wanted |= {Span(row.started_at, None) for row in rows if row.ended_at is None}
    stale = [row for row in rows if Span(row.started_at, row.ended_at) not in wanted]
    MonitoringGap.objects.filter(pk__in=[row.pk for row in stale]).delete()
    known = {Span(row.started_at, row.ended_at) for row in rows}
    MonitoringGap.objects.bulk_create(
        MonitoringGap(source=source, started_at=span.started_at, ended_at=span.ended_at) for span in wanted - known
    )
    if any(row.ended_at is None for row in stale) and source.covered_until > at:
        publish(kind="source.heard", target=source, by=str(source), at=at)


@transaction.atomic
def record_gaps(*, at: datetime) -> int:
    """Write down which sources have fallen silent, once each; return how many."""
    noted = Exists(MonitoringGap.objects.filter(source=OuterRef("pk"), ended_at=None))
    locked = MonitoringSource.objects.select_for_update(no_key=True, skip_locked=True)
    silent = list(locked.filter(~noted, covered_until__lte=at).order_by("pk"))
    for source in silent:
        MonitoringGap.objects.create(source=source, started_at=source.covered_until)
        publish(kind="source.silent", target=source, by=str(source), at=at)
    return len(silent)


@transaction.atomic
def rebuild_services_of(*, source: MonitoringSource, since: datetime) -> None:
    """Bring the states of all services that this source covers up to date."""
    rebuild(service_ids=list(source.services.values_list("pk", flat=True)), since=since)


def sources_with_counts() -> QuerySet[MonitoringSource]:
    """Return the monitoring sources, each with how many services it covers and alerts it has that lead to none."""
    return MonitoringSource.objects.annotate(
        covered=Count("services", distinct=True), unmapped_alerts=Count("unmapped", distinct=True)
    )
