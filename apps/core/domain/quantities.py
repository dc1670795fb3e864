"""Parse and format sizes, durations and counts: without loss for fields, rounded for reading."""

import re
from collections.abc import Mapping
from decimal import Decimal

JOULES_PER_KWH = 3_600_000

#: The units in which sizes are shown.
_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15}
_BYTE_UNITS = {
    **{unit.lower(): factor for unit, factor in _BYTES.items()},
    **{unit: 2 ** (10 * power) for power, unit in enumerate(("kib", "mib", "gib", "tib"), start=1)},
}
_SECONDS = {"d": 86_400, "h": 3600, "min": 60, "s": 1}
_TIME_UNITS = {
    **_SECONDS,
    **dict.fromkeys(("day", "days"), 86_400),
    **dict.fromkeys(("hour", "hours"), 3600),
    **dict.fromkeys(("m", "minute", "minutes"), 60),
    **dict.fromkeys(("sec", "second", "seconds"), 1),
}
_UNITS_TO_SHOW = [("days", 86_400), ("h", 3600), ("min", 60), ("s", 1)]
#: Longer durations are shown in days.
_DAYS_FROM = 2 * 86_400
_COUNT_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}

_PART = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)\s*([A-Za-z]*)\s*", re.ASCII)
_CLOCK = re.compile(r"(?:(\d{1,4})-)?(\d{1,4}):(\d{2})(?::(\d{2}))?", re.ASCII)
_HOURS_AND_MINUTES = re.compile(r"(\d{1,4})\s*h\s*(\d{1,2})", re.ASCII)
_SEPARATOR = re.compile(r"(?<=\d)[\s,_'](?=\d{3}(?!\d))")

#: Longer text is rejected before any pattern sees it.
MAX_LENGTH = 100

SIZE_HELP = "Enter a size with its unit, such as 4 GB or 3900 MB."
DURATION_HELP = "Enter a duration such as 8 h, 1 h 30 min, 2 d or 08:00:00."
COUNT_HELP = "Enter a whole number without a sign, such as 4000, 20,000,000 or 20 M."


def _total(text: str, units: Mapping[str, int], refusal: str, *, most: int = 1) -> int:
    """Return the sum of up to `most` parts, such as `1 h 30 min`.

    Raises `ValueError` with the message `refusal`.
    """
    parts = list(_PART.finditer(text)) if len(text) <= MAX_LENGTH else []
    factors = [units.get(part[2].lower()) for part in parts]
    if not 0 < len(parts) <= most or None in factors or "".join(part[0] for part in parts) != text:
        raise ValueError(refusal)
    total = Decimal(0)
    for part, factor in zip(parts, factors, strict=True):
        total += Decimal(part[1]) * (factor or 0)
    if total != int(total):
        raise ValueError(refusal)
    return int(total)


def parse_size(text: str) -> int:
    """Return the bytes in `4 GB`, `3900 MB`, `4 GiB`. Raises `ValueError` with a hint."""
    return _total(text.strip(), _BYTE_UNITS, SIZE_HELP)


def format_size(count: int) -> str:
    """Format bytes so that `parse_size` returns the same number: `3.9 GB`, `4.294967296 GB`."""
    unit = next((unit for unit, factor in reversed(_BYTES.items()) if count >= factor), "B")
    return f"{_plain(Decimal(count) / _BYTES[unit])} {unit}"


def round_size(count: float) -> str:
    """Format bytes for reading: `3.1 GB`, `120 MB`."""
    amount = float(count)
    for unit in _BYTES:
        if amount < 999.5 or unit == "PB":
            break
        amount /= 1000
    if unit == "B" or amount >= 99.95:
        digits = f"{amount:,.0f}"
    else:
        digits = f"{amount:.1f}".removesuffix(".0")
    return f"{digits} {unit}"


def parse_duration(text: str) -> int:
    """Return the seconds in `8 h`, `08:00:00`, `2 d`, `1-12:00:00`, `2 h 57`.

    Raises `ValueError` with a hint.
    """
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
    return _total(text, _TIME_UNITS, DURATION_HELP, most=10)


def format_duration(seconds: int) -> str:
    """Format seconds so that `parse_duration` returns the same number.

    For example `2 h 07 min`, `36 h`, `2 days 12 h`.
    """
    parts: list[str] = []
    units = _UNITS_TO_SHOW
    if seconds < _DAYS_FROM:
        units = _UNITS_TO_SHOW[1:]
    for unit, factor in units:
        amount, seconds = divmod(seconds, factor)
        if amount:
            parts.append(f"{amount:02d} {unit}" if parts and unit == "min" else f"{amount} {unit}")
    return " ".join(parts) or "0 s"


def round_duration(seconds: float) -> str:
    """Format seconds for reading: `41 s`, `13 min`, `2 h 57 min`, `36 h`, `19 days`."""
    total = max(0, int(seconds))
    if total < 60:
        unit = 1
    elif total < _DAYS_FROM:
        unit = 60
    else:
        unit = _SECONDS["d"]
    return format_duration(total // unit * unit)


def parse_count(text: str) -> int:
    """Return the number in `4000`, `20,000,000`, `20 M`. Raises `ValueError` with a hint."""
    text = text.strip()
    return _total(
        _SEPARATOR.sub("", text) if len(text) <= MAX_LENGTH else text, _COUNT_UNITS, COUNT_HELP
    )


def format_count(count: int) -> str:
    return f"{count:,}"


def count_noun(count: int, noun: str) -> str:
    """Return a count with its noun: `1 job`, `12,400 jobs`. The plural of the noun ends in s."""
    plural = "" if count == 1 else "s"
    return f"{count:,} {noun}{plural}"


def _plain(amount: Decimal) -> str:
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
