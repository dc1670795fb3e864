"""Maintenance windows: schedule, cancel and list them.

Repeated work has one window per occurrence.
"""

from collections.abc import Collection
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import pairwise, product
from typing import Any
from uuid import uuid4

from dateutil.rrule import DAILY, MONTHLY, WEEKLY, rrule, weekday
from django.db import transaction
from django.db.models import QuerySet

from apps.accounts.models import User
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, StaleState
from apps.statusboard.domain.states.history import rebuild
from apps.statusboard.enums import Repeat, WindowEffect
from apps.statusboard.feeds.base import Window
from apps.statusboard.models import DowntimeWindow, MonitoringSource, Service
from apps.statusboard.permissions import require_board_role

#: Frequency and interval of repeated work for `rrule`; for monthly work, see `_starts`.
_FREQUENCIES = {
    Repeat.DAILY: (DAILY, 1),
    Repeat.WEEKLY: (WEEKLY, 1),
    Repeat.FORTNIGHTLY: (WEEKLY, 2),
}
#: How far ahead repeated work can be planned.
AHEAD = timedelta(days=731)


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
    effect: WindowEffect = WindowEffect.DOWN,
    repeat: Repeat | None = None,
    last_day: date | None = None,
    zone: tzinfo = UTC,
) -> DowntimeWindow:
    """Schedule maintenance of some services, and return the first window.

    Past work may be recorded too. With `repeat`, the work takes place at the same time of day in
    `zone` until `last_day`, inclusive. Raises `NotAllowed`, `InvalidFields`.
    """
    require_board_role(by, "manage maintenance windows")
    length = ends_at - starts_at
    starts, problems = _checked_starts(starts_at, length, repeat, last_day, zone)
    if not services:
        problems["services"] = ["Select at least one service."]
    if problems:
        raise InvalidFields(problems)
    series = uuid4() if repeat else None
    windows = DowntimeWindow.objects.bulk_create(
        DowntimeWindow(
            title=title,
            text=text,
            starts_at=start,
            ends_at=start + length,
            scheduled_by=by.username,
            effect=effect or WindowEffect.DOWN,
            series=series,
        )
        for start in starts
    )
    through = DowntimeWindow.services.through
    through.objects.bulk_create(
        through(downtimewindow=window, service=service)
        for window, service in product(windows, services)
    )
    data: dict[str, object] = {
        "services": sorted(service.slug for service in services),
        "starts_at": starts_at.isoformat(),
        "ends_at": ends_at.isoformat(),
    }
    if repeat:
        data |= {"repeat": repeat, "windows": len(windows)}
    publish(kind="window.scheduled", target=windows[0], by=by, at=at, data=data)
    rebuild(service_ids=[service.pk for service in services], since=starts_at)
    return windows[0]


def _checked_starts(
    starts_at: datetime,
    length: timedelta,
    repeat: Repeat | None,
    last_day: date | None,
    zone: tzinfo,
) -> tuple[list[datetime], dict[str, list[str]]]:
    """Return the starts of the work, and problems by field."""
    if length <= timedelta():
        return [], {"ends_at": ["End must be after start."]}
    if not repeat:
        problem = "Select how often it takes place, or leave the last day empty."
        return [starts_at], {"repeat": [problem]} if last_day else {}
    if last_day is None:
        return [], {"last_day": ["Enter the last day."]}
    if problem := _problem_of_last_day(starts_at, last_day, zone):
        return [], {"last_day": [problem]}
    starts = _starts(starts_at, Repeat(repeat), last_day, zone)
    if any(later - earlier < length for earlier, later in pairwise(starts)):
        return [], {"ends_at": ["Each window must end before the next one starts."]}
    return starts, {}


def _problem_of_last_day(starts_at: datetime, last_day: date, zone: tzinfo) -> str:
    if last_day < starts_at.astimezone(zone).date():
        return "The last day must not be before the start."
    if last_day - starts_at.astimezone(zone).date() > AHEAD:
        return "The last day must be within two years of the start."
    return ""


def _starts(starts_at: datetime, repeat: Repeat, last_day: date, zone: tzinfo) -> list[datetime]:
    """Return the starts up to a day, in UTC; the time of day in `zone` stays the same."""
    local = starts_at.astimezone(zone)
    until = datetime.combine(last_day, time.max, zone)
    if repeat == Repeat.MONTHLY:
        place = (local.day - 1) // 7 + 1
        if place == 5:
            # Not every month has a fifth Tuesday: count it from the end.
            place = -1
        starts = rrule(
            MONTHLY, dtstart=local, until=until, byweekday=weekday(local.weekday(), place)
        )
    else:
        frequency, every = _FREQUENCIES[repeat]
        starts = rrule(frequency, interval=every, dtstart=local, until=until)
    return [start.astimezone(UTC) for start in starts]


@transaction.atomic
def cancel_window(
    *, window: DowntimeWindow, by: User, at: datetime, reason: str, following: bool = False
) -> DowntimeWindow:
    """Cancel a window, or end it now if it is in progress.

    With `following`, also cancel the later windows of its series. Raises `NotAllowed`, and
    `StaleState` if it is over.
    """
    require_board_role(by, "manage maintenance windows")
    locked = DowntimeWindow.objects.select_for_update().get(pk=window.pk)
    if locked.over_at <= at or locked.cancelled_at:
        raise StaleState(f"“{locked}” is already over.")
    locked.cancelled_at = at
    locked.save(update_fields=["cancelled_at"])
    data = {}
    if following and locked.series:
        later = DowntimeWindow.objects.filter(
            series=locked.series, starts_at__gt=locked.starts_at, cancelled_at=None
        )
        data = {"following": later.update(cancelled_at=at)}
    publish(kind="window.cancelled", target=locked, by=by, at=at, reason=reason, data=data)
    rebuild(
        service_ids=list(locked.services.values_list("pk", flat=True)),
        since=min(at, locked.starts_at),
    )
    return locked


def record_window(
    *, source: MonitoringSource, window: Window, service: Service, at: datetime
) -> set[int]:
    """Create or change a window that a source reports; return the primary keys of changed services.

    A window that a user cancelled stays cancelled. The source's row must be locked.
    """
    recorded = DowntimeWindow.objects.filter(source=source, source_key=window.key).first()
    values: dict[str, Any] = {
        "title": window.title[:200],
        "text": window.text[:10_000],
        "starts_at": window.starts_at,
        "ends_at": window.ends_at,
        "effect": window.effect or WindowEffect.DOWN,
    }
    if recorded is None:
        if window.is_cancelled:
            return set()
        recorded = DowntimeWindow.objects.create(
            source=source, source_key=window.key, scheduled_by=source.slug, **values
        )
        recorded.services.add(service)
        times = {"starts_at": window.starts_at.isoformat(), "ends_at": window.ends_at.isoformat()}
        data = {"services": [service.slug], **times}
        publish(kind="window.scheduled", target=recorded, by=str(source), at=at, data=data)
        return {service.pk}
    services_before = set(recorded.services.values_list("pk", flat=True))
    values["cancelled_at"] = recorded.cancelled_at
    if window.is_cancelled and recorded.cancelled_at is None:
        values["cancelled_at"] = at
    is_unchanged = all(getattr(recorded, name) == value for name, value in values.items())
    if is_unchanged and services_before == {service.pk}:
        return set()

    has_moved = (recorded.starts_at, recorded.ends_at) != (window.starts_at, window.ends_at)
    old_period = _period_of(recorded)
    for name, value in values.items():
        setattr(recorded, name, value)
    recorded.save()
    recorded.services.set([service])
    if has_moved:
        publish(
            kind="window.moved",
            target=recorded,
            by=str(source),
            at=at,
            old=old_period,
            new=_period_of(recorded),
        )
    return services_before | {service.pk}


def _period_of(window: DowntimeWindow) -> str:
    """Return start and end of a window as events have them."""
    return f"{window.starts_at:%Y-%m-%dT%H:%MZ} to {window.ends_at:%Y-%m-%dT%H:%MZ}"


def cancel_missing(*, source: MonitoringSource, kept: Collection[str], at: datetime) -> set[int]:
    """Cancel a source's current and future windows that are not in its complete list.

    Return the primary keys of their services.
    """
    missing = DowntimeWindow.objects.filter(
        source=source, ends_at__gt=at, cancelled_at=None
    ).exclude(source_key__in=kept)
    changed: set[int] = set()
    for window in missing.prefetch_related("services"):
        window.cancelled_at = at
        window.save(update_fields=["cancelled_at"])
        publish(
            kind="window.cancelled",
            target=window,
            by=str(source),
            at=at,
            reason="Its source no longer lists it.",
        )
        changed |= {service.pk for service in window.services.all()}
    return changed


def windows_ahead(at: datetime) -> QuerySet[DowntimeWindow]:
    """Return current and future windows, next first."""
    ahead = DowntimeWindow.objects.filter(ends_at__gt=at, cancelled_at=None)
    return ahead.prefetch_related("services").order_by("starts_at", "pk")


def windows_of(service: Service) -> QuerySet[DowntimeWindow]:
    """Return a service's windows, including past ones, newest first."""
    return DowntimeWindow.objects.filter(services=service).order_by("-starts_at", "-pk")


def windows_between(starts_at: datetime, ends_at: datetime) -> QuerySet[DowntimeWindow]:
    """Return the windows that overlap [starts_at, ends_at), including cancelled ones, by start."""
    windows = DowntimeWindow.objects.filter(starts_at__lt=ends_at, ends_at__gt=starts_at)
    return windows.prefetch_related("services").order_by("starts_at", "pk")
