"""Sizes, durations and counts as people type them, and back again without loss."""

import re
from decimal import Decimal

_BYTES = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_BYTE_UNITS = {unit.lower(): factor for unit, factor in _BYTES.items()}
_SECONDS = {"d": 86_400, "h": 3600, "min": 60, "s": 1}
_TIME_UNITS = {
    **_SECONDS,
    **dict.fromkeys(("day", "days"), 86_400),
    **dict.fromkeys(("hour", "hours"), 3600),
    **dict.fromkeys(("m", "minute", "minutes"), 60),
    **dict.fromkeys(("sec", "second", "seconds"), 1),
}
_COUNT_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}

_NUMBER = r"(\d{1,15}(?:\.\d{1,6})?)"
_SIZE = re.compile(rf"{_NUMBER}\s*([A-Za-z]+)", re.ASCII)
_PART = re.compile(rf"{_NUMBER}\s*([A-Za-z]+)\s*", re.ASCII)
_CLOCK = re.compile(r"(?:(\d{1,4})-)?(\d{1,4}):(\d{2})(?::(\d{2}))?", re.ASCII)
_HOURS_AND_MINUTES = re.compile(r"(\d{1,4})\s*h\s*(\d{1,2})", re.ASCII)
_COUNT = re.compile(rf"{_NUMBER}\s*([kKmMgG]?)", re.ASCII)
_SEPARATOR = re.compile(r"(?<=\d)[\s,_'](?=\d{3}(?!\d))")

SIZE_HELP = "Write a size with its unit, such as 4 GB, 3900 MB or 4 GiB."
DURATION_HELP = "Write a time such as 8 h, 1 h 30 min, 2 d or 08:00:00."
COUNT_HELP = "Write a whole number, such as 4000, 20,000,000 or 20 M."


def parse_size(text: str) -> int:
    """Return the bytes in `4 GB`, `3900 MB`, `4 GiB`. Raises `ValueError` with what to write."""
    found = _SIZE.fullmatch(text.strip())
    factor = _BYTE_UNITS.get(found[2].lower()) if found else None
    if found is None or factor is None:
        raise ValueError(SIZE_HELP)
    return _whole(Decimal(found[1]) * factor, SIZE_HELP)


def format_size(count: int) -> str:
    """Write bytes so that `parse_size` reads the same number."""
    for unit in ("TB", "GB", "TiB", "GiB", "MB", "MiB", "kB", "KiB"):
        if count >= _BYTES[unit]:
            amount = Decimal(count) / _BYTES[unit]
            if amount == round(amount, 1):
                return f"{_plain(amount)} {unit}"
    return f"{count} B"


def parse_duration(text: str) -> int:
    """Return the seconds in `8 h`, `08:00:00`, `2 d`, `1-12:00:00`, `2 h 57`. Raises `ValueError` likewise."""
    text = text.strip()
    clock = _CLOCK.fullmatch(text)
    if clock:
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        if minutes > 59 or seconds > 59:
            raise ValueError(DURATION_HELP)
        return days * 86_400 + hours * 3600 + minutes * 60 + seconds
    short = _HOURS_AND_MINUTES.fullmatch(text)
    if short:
        return int(short[1]) * 3600 + int(short[2]) * 60
    return _parse_parts(text)


def _parse_parts(text: str) -> int:
    total, place = Decimal(0), 0
    while place < len(text):
        part = _PART.match(text, place)
        factor = _TIME_UNITS.get(part[2].lower()) if part else None
        if part is None or factor is None:
            raise ValueError(DURATION_HELP)
        total += Decimal(part[1]) * factor
        place = part.end()
    if not text:
        raise ValueError(DURATION_HELP)
    return _whole(total, DURATION_HELP)


def format_duration(seconds: int) -> str:
    """Write seconds so that `parse_duration` reads the same number."""
    parts = []
    for unit, factor in _SECONDS.items():
        amount, seconds = divmod(seconds, factor)
        if amount:
            parts.append(f"{amount} {unit}")
    return " ".join(parts) or "0 s"


def parse_count(text: str) -> int:
    """Return the number in `4000`, `20,000,000`, `20 M`. Raises `ValueError` with what to write."""
    found = _COUNT.fullmatch(_SEPARATOR.sub("", text.strip()))
    if found is None:
        raise ValueError(COUNT_HELP)
    return _whole(Decimal(found[1]) * _COUNT_UNITS[found[2].lower()], COUNT_HELP)


def format_count(count: int) -> str:
    """Write a count with separators."""
    return f"{count:,}"


def _whole(amount: Decimal, refusal: str) -> int:
    if amount != amount.to_integral_value():
        raise ValueError(refusal)
    return int(amount)


def _plain(amount: Decimal) -> str:
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
