"""Time windows: named hours of the week, in the portal's time zone."""

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db.models.expressions import Combinable
from django.db.models.functions import ExtractHour, ExtractIsoWeekDay

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_FULL_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def portal_zone() -> ZoneInfo:
    """Return the time zone of windows, weekdays and hours, which is the same for all users."""
    return ZoneInfo(settings.TIME_ZONE)


@cache
def windows_of_week(text: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the names of the windows, and the window number of each of the 168 hours of the week.

    The week starts on Monday at 0:00. `text` is the setting TIME_WINDOWS: `NAME=DAYS HOURS…; …`,
    such as `lunch=Mon-Fri 12-13`, with `*` for all. An hour belongs to the first window that
    includes it. Raises `ValueError`.
    """
    names: list[str] = []
    hours: dict[int, int] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, equals, rule = part.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"{part!r} is not a window such as lunch=Mon-Fri 12-13")
        names.append(name.strip())
        for hour in _hours(rule.split()):
            hours.setdefault(hour, len(names) - 1)
    if len(hours) < 7 * 24:
        raise ValueError("the windows leave hours out; end with one such as night=*")
    return tuple(names), tuple(hours[hour] for hour in range(7 * 24))


def _hours(parts: Sequence[str]) -> list[int]:
    """Return the hours of the week that `DAYS HOURS…` selects."""
    if parts == ["*"]:
        return list(range(7 * 24))
    if not parts:
        raise ValueError("a window needs days, such as Mon-Fri")

    day_range, *spans = parts
    first, _, last = day_range.partition("-")
    if first not in WEEKDAYS or (last or first) not in WEEKDAYS:
        raise ValueError(f"{day_range!r} is not a range of days such as Mon-Fri")
    begin = WEEKDAYS.index(first)
    end = WEEKDAYS.index(last or first)
    if end < begin:
        end += 7
    days = [day % 7 for day in range(begin, end + 1)]

    hours: list[int] = []
    for span in spans or ["0-24"]:
        start, _, stop = span.partition("-")
        if not (start.isdigit() and stop.isdigit() and int(start) < int(stop) <= 24):
            raise ValueError(f"{span!r} is not a range of hours such as 12-13")
        for day in days:
            hours.extend(range(day * 24 + int(start), day * 24 + int(stop)))
    return hours


def hour_of_week(at: datetime) -> int:
    """Return the hour of the week in the portal's time zone, 0 to 167."""
    local = at.astimezone(portal_zone())
    return local.weekday() * 24 + local.hour


def window_names() -> tuple[str, ...]:
    return windows_of_week(settings.TIME_WINDOWS)[0]


def window_of(at: datetime) -> int:
    """Return the number of the window that includes a time."""
    return windows_of_week(settings.TIME_WINDOWS)[1][hour_of_week(at)]


def parse_hour(text: str) -> str:
    """Return the canonical hour for typed text, such as `07` for `7`; other text unchanged."""
    is_number = text.isascii() and text.isdigit()
    return text.lstrip("0").rjust(2, "0") if is_number else text


def parse_weekday(text: str) -> str:
    """Return the canonical weekday for `mon`, `Monday` or `1`; other text unchanged."""
    for number, (short, full) in enumerate(zip(WEEKDAYS, _FULL_WEEKDAYS, strict=True), 1):
        if text.lower() in (short.lower(), full.lower(), str(number)):
            return short
    return text


def hours_with(dimension: str, text: str) -> list[int]:
    """Return the hours of the week with this value of `hour`, `weekday` or `window`."""
    names, windows = windows_of_week(settings.TIME_WINDOWS)
    texts = {
        "hour": [f"{hour % 24:02d}" for hour in range(7 * 24)],
        "weekday": [WEEKDAYS[hour // 24] for hour in range(7 * 24)],
        "window": [names[number] for number in windows],
    }
    return [hour for hour, text_of_hour in enumerate(texts[dimension]) if text_of_hour == text]


def hour_of_week_expression() -> Combinable:
    """Return a query expression for the hour of the week in which jobs ended."""
    zone = portal_zone()
    return (ExtractIsoWeekDay("ended_at", tzinfo=zone) - 1) * 24 + ExtractHour(
        "ended_at", tzinfo=zone
    )
