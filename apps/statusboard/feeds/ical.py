"""Calendars (iCalendar): each event is a maintenance window, with one per recurrence.

OSG's calendar lacks DTSTAMP, Outlook's uses Windows zone names, and exceptions of a series share
its UID.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from dateutil.rrule import rrulestr

from apps.statusboard.feeds.base import Feed, Message, UnreadablePayload, Window
from apps.statusboard.feeds.values import text_of

#: Limits of a recurring event: number of windows, and time after its first start.
MOST = 1_000
HORIZON = timedelta(days=4_000)


class Ical(Feed):
    name = "ical"
    pulls = ("",)

    def parse(self, body: bytes) -> Message:
        from icalendar import Calendar, Component

        try:
            calendar = Calendar.from_ical(body)
        except (ValueError, IndexError, KeyError, AttributeError) as error:
            raise UnreadablePayload(f"invalid calendar: {error}") from error
        if not isinstance(calendar, Component) or calendar.name != "VCALENDAR":
            raise UnreadablePayload("not a calendar")
        events = calendar.walk("VEVENT")
        moved = set()
        for event in events:
            if "RECURRENCE-ID" in event:
                moved.add((_uid(event), _moment(event.decoded("RECURRENCE-ID"))))
        windows: list[Window] = []
        notes: list[str] = []
        for place, event in enumerate(events):
            try:
                windows += _windows(event, moved)
            except (KeyError, ValueError, TypeError, OverflowError, AttributeError) as error:
                notes.append(f"event {place} skipped: {type(error).__name__} {error}")
        return Message((), tuple(notes), tuple(windows), is_complete=True)


def _windows(event: Any, moved: set[tuple[str, datetime]]) -> Iterator[Window]:
    uid = _uid(event)
    starts_at = _moment(event.decoded("DTSTART"))
    if "DTEND" in event:
        length = _moment(event.decoded("DTEND")) - starts_at
    elif "DURATION" in event:
        length = event.decoded("DURATION")
    else:
        length = timedelta(days=1)
    title = text_of(event.get("SUMMARY")) or uid
    names = [text_of(name) for name in getattr(event.get("CATEGORIES"), "cats", [])]
    common: dict[str, Any] = {
        "title": title[:200],
        "text": text_of(event.get("DESCRIPTION")),
        "labels": {
            "summary": title,
            "location": text_of(event.get("LOCATION")),
            "category": ", ".join(names),
        },
        "is_cancelled": text_of(event.get("STATUS")).upper() == "CANCELLED",
    }
    for at in _starts(event, starts_at):
        if "RRULE" in event and (uid, at) in moved:
            continue
        if "RRULE" in event or "RECURRENCE-ID" in event:
            key = f"{uid} {at:%Y%m%dT%H%M}"
        else:
            key = uid
        yield Window(key=key[-200:], starts_at=at, ends_at=at + length, **common)


def _starts(event: Any, starts_at: datetime) -> list[datetime]:
    """Return the starts of an event; the time of day stays the same in the event's own zone."""
    if "RRULE" not in event:
        return [starts_at]
    local = event.decoded("DTSTART")
    if not isinstance(local, datetime):
        local = datetime.combine(local, time(), UTC)
    text = event["RRULE"].to_ical().decode()
    if local.tzinfo is None:
        local = local.replace(tzinfo=UTC)
    rule = rrulestr(text, dtstart=local)
    excluded = event.get("EXDATE", [])
    lists = excluded if isinstance(excluded, list) else [excluded]
    skipped: set[datetime] = set()
    for exceptions in lists:
        skipped.update(_moment(exception.dt) for exception in exceptions.dts)

    starts: list[datetime] = []
    for at in rule:
        moment = at.astimezone(UTC)
        if len(starts) >= MOST or moment > starts_at + HORIZON:
            break
        if moment not in skipped:
            starts.append(moment)
    return starts


def _uid(event: Any) -> str:
    return text_of(event.get("UID")) or text_of(event.get("SUMMARY"))


def _moment(value: date | datetime) -> datetime:
    """Return a time in UTC; a date, or a time without a zone, counts as UTC."""
    if not isinstance(value, datetime):
        value = datetime.combine(value, time(), UTC)
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC)
