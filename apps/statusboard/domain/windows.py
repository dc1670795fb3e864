"""Maintenance windows: schedule, cancel and list them."""

from collections.abc import Collection
from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet

from apps.accounts.models import User
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, StaleState
from apps.statusboard.domain.history import rebuild
from apps.statusboard.models import DowntimeWindow, Service
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
        title=title, text=text, starts_at=starts_at, ends_at=ends_at, scheduled_by=by.username
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


def windows_ahead(at: datetime) -> QuerySet[DowntimeWindow]:
    """Return current and future windows, next first."""
    ahead = DowntimeWindow.objects.filter(ends_at__gt=at, cancelled_at=None)
    return ahead.prefetch_related("services").order_by("starts_at", "pk")


def windows_of(service: Service) -> QuerySet[DowntimeWindow]:
    """Return a service's windows, including past ones, latest first."""
    return DowntimeWindow.objects.filter(services=service).order_by("-starts_at", "-pk")
