"""Maintenance windows: schedule, cancel and list them."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from apps.accounts.models import User
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, StaleState
from apps.statusboard.domain.history import rebuild
from apps.statusboard.enums import Effect
from apps.statusboard.feeds.base import Window
from apps.statusboard.models import DowntimeWindow, MonitoringSource, Service
from apps.statusboard.permissions import require_board_role


@transaction.atomic
def schedule_window(
    *,
    services: Collection[Service],
    title: str,
    starts_at: datetime,
    ends_at: datetime,
    by: User,
    at: datetime,
    text: str = "",
    effect: Effect = Effect.DOWN,
) -> DowntimeWindow:
    """Schedule maintenance of some services; windows in the past may be recorded too.

    Raises `NotAllowed`, `InvalidFields`.
    """
    require_board_role(by, "manage maintenance windows")
    problems: dict[str, list[str]] = {}
    if not services:
        problems["services"] = ["Select at least one service."]
    if ends_at <= starts_at:
        problems["ends_at"] = ["End must be after start."]
    if problems:
        raise InvalidFields(problems)
    window = DowntimeWindow.objects.create(
        title=title,
        text=text,
        starts_at=starts_at,
        ends_at=ends_at,
        scheduled_by=by.username,
        effect=effect or Effect.DOWN,
    )
    window.services.set(services)
    publish(
        kind="window.scheduled",
        target=window,
        by=by,
        at=at,
        data={
            "services": sorted(service.slug for service in services),
            "starts_at": starts_at.isoformat(),
            "ends_at": ends_at.isoformat(),
        },
    )
    rebuild(service_ids=[service.pk for service in services], since=starts_at)
    return window


@transaction.atomic
def cancel_window(*, window: DowntimeWindow, by: User, at: datetime, reason: str) -> DowntimeWindow:
    """Cancel a window, or end it now if it is in progress. Raises `NotAllowed`, and `StaleState` if it is over."""
    require_board_role(by, "manage maintenance windows")
    row = DowntimeWindow.objects.select_for_update().get(pk=window.pk)
    if row.over_at <= at or row.cancelled_at:
        raise StaleState(f"“{row}” is already over.")
    row.cancelled_at = at
    row.save(update_fields=["cancelled_at"])
    publish(kind="window.cancelled", target=row, by=by, at=at, reason=reason)
    rebuild(service_ids=list(row.services.values_list("pk", flat=True)), since=min(at, row.starts_at))
    return row


def record_window(*, source: MonitoringSource, window: Window, service: Service, at: datetime) -> set[int]:
    """Plan or change a window that a source reports; return the ids of the services it changes.

    One that was cancelled by a user stays cancelled. The source's row must be locked.
    """
    row = DowntimeWindow.objects.filter(source=source, source_key=window.key).first()
    values: dict[str, Any] = {
        "title": window.title[:200],
        "text": window.text[:10_000],
        "starts_at": window.starts_at,
        "ends_at": window.ends_at,
        "effect": window.effect or Effect.DOWN,
    }
    if row is None:
        if window.is_cancelled:
            return set()
        row = DowntimeWindow.objects.create(source=source, source_key=window.key, scheduled_by=source.slug, **values)
        row.services.add(service)
        times = {"starts_at": window.starts_at.isoformat(), "ends_at": window.ends_at.isoformat()}
        data = {"services": [service.slug], **times}
        publish(kind="window.scheduled", target=row, by=str(source), at=at, data=data)
        return {service.pk}
    before = set(row.services.values_list("pk", flat=True))
    cancelled_at = (row.cancelled_at or at) if window.is_cancelled else row.cancelled_at
    values["cancelled_at"] = cancelled_at
    if before == {service.pk} and all(getattr(row, name) == value for name, value in values.items()):
        return set()
    moved = (row.starts_at, row.ends_at) != (window.starts_at, window.ends_at)
    old = f"{row.starts_at:%Y-%m-%dT%H:%MZ} to {row.ends_at:%Y-%m-%dT%H:%MZ}"
    for name, value in values.items():
        setattr(row, name, value)
    row.save()
    row.services.set([service])
    if moved:
        new = f"{row.starts_at:%Y-%m-%dT%H:%MZ} to {row.ends_at:%Y-%m-%dT%H:%MZ}"
        publish(kind="window.moved", target=row, by=str(source), at=at, old=old, new=new)
    return before | {service.pk}


def cancel_missing(*, source: MonitoringSource, kept: Collection[str], at: datetime) -> set[int]:
    """Cancel the windows of a source that are not over and not in its complete list; return their services' ids."""
    gone = DowntimeWindow.objects.filter(source=source, ends_at__gt=at, cancelled_at=None).exclude(source_key__in=kept)
    changed: set[int] = set()
    for row in gone.prefetch_related("services"):
        row.cancelled_at = at
        row.save(update_fields=["cancelled_at"])
        publish(kind="window.cancelled", target=row, by=str(source), at=at, reason="Its source no longer lists it.")
        changed |= {service.pk for service in row.services.all()}
    return changed


def windows_ahead(at: datetime) -> QuerySet[DowntimeWindow]:
    """Return current and future windows, next first."""
    ahead = DowntimeWindow.objects.filter(ends_at__gt=at, cancelled_at=None)
    return ahead.prefetch_related("services").order_by("starts_at", "pk")


def windows_of(service: Service) -> QuerySet[DowntimeWindow]:
    """Return a service's windows, including past ones, latest first."""
    return DowntimeWindow.objects.filter(services=service).order_by("-starts_at", "-pk")
