"""Times at the start of log lines, in the formats of common programs."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import re2

_MONTH = rb"Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_MONTHS = {name.decode(): number for number, name in enumerate(_MONTH.split(b"|"), 1)}
_ZONE = rb"(?: ?(Z|UTC|GMT|[+-]\d\d:?\d\d)\b)?"
#: ISO 8601 and its variants; `23-Nov-2026` of art and Apache; syslog, which has no year; XRootD's
#: `261123`.
_TIME = re2.compile(
    rb"(?m)^[^\n]{0,40}?(?:\b(\d{4})[-/](\d\d)[-/](\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,]\d{1,9})?"
    + _ZONE
    + rb"|\b(\d{1,2})[-/ ]("
    + _MONTH
    + rb")[-/ ](\d{4})[: ](\d\d:\d\d:\d\d)"
    + _ZONE
    + rb"|\b("
    + _MONTH
    + rb") {1,2}(\d{1,2}) (\d\d:\d\d:\d\d))"
    + rb"|^(\d\d)(\d\d)(\d\d) (\d\d:\d\d:\d\d)\b"
)
_HALF_HOUR = timedelta(minutes=30)
_SLACK = timedelta(minutes=1)


class LineTime(NamedTuple):
    """The time of a line, identified by its first byte; naive if the line has no time zone."""

    offset: int
    at: datetime


def times_in(data: bytes, offset: int, *, near: datetime) -> Iterator[LineTime]:
    """Yield the lines of a block that start with a time.

    A missing year is the one that brings the time closest to `near`.
    """
    for match in _TIME.finditer(data):
        iso = match.group(1)
        art = match.group(6)
        syslog = match.group(11)
        xrootd = match.group(14)
        group = match.group
        try:
            if iso:
                at = _moment(int(iso), int(group(2)), int(group(3)), group(4), group(5))
            elif art:
                at = _moment(
                    int(group(8)), _MONTHS[group(7).decode()], int(art), group(9), group(10)
                )
            elif syslog:
                month = _MONTHS[syslog.decode()]
                day = int(group(12))
                at = min(
                    (_moment(near.year + step, month, day, group(13), None) for step in (-1, 0, 1)),
                    key=lambda moment: abs(moment.replace(tzinfo=UTC) - near),
                )
            else:
                at = _moment(2000 + int(xrootd), int(group(15)), int(group(16)), group(17), None)
        except ValueError:  # a date that does not exist, such as 31 February
            continue
        yield LineTime(offset + match.start(), at)


def _moment(year: int, month: int, day: int, clock: bytes, zone: bytes | None) -> datetime:
    hour, minute, second = map(int, clock.split(b":"))
    at = datetime(year, month, day, hour, minute, min(second, 59))  # noqa: DTZ001  the zone follows
    if not zone:
        return at
    if zone[:1] not in b"+-":
        return at.replace(tzinfo=UTC)
    sign = -1 if zone.startswith(b"-") else 1
    digits = zone[1:].replace(b":", b"")
    return (at - sign * timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))).replace(
        tzinfo=UTC
    )


def local_offset(times: list[datetime], start: datetime, end: datetime) -> timedelta | None:
    """Return how far the clock that wrote these naive times is ahead of UTC, in half hours.

    With this offset, all times fall into the run from `start` to `end`. Of several such offsets,
    the one that brings the first time closest to the start is returned; None if there is none.
    """
    if not times:
        return None
    first = min(times).replace(tzinfo=UTC)
    last = max(times).replace(tzinfo=UTC)
    offset = (first - start + _SLACK) // _HALF_HOUR * _HALF_HOUR
    fits = abs(offset) <= timedelta(hours=14) and last - offset <= end + _SLACK
    return offset if fits else None
