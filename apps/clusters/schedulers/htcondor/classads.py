"""Parse HTCondor's job ads as the schedd writes them: one line `Name = value` per attribute.

Names are case-insensitive. Only literals are parsed: expressions come from users, are never
evaluated, and count as missing.
"""

import re
from collections.abc import Iterable, Mapping

#: The lines of an ad by attribute name in lower case.
Ad = Mapping[bytes, bytes]

_NUMBER = re.compile(rb"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
_TRUTH = {b"true": True, b"false": False}


def line_of(name: bytes, value: bytes) -> bytes:
    return name + b" = " + value


def read_ad(lines: Iterable[bytes]) -> dict[bytes, bytes]:
    """Parse an ad; other lines are skipped."""
    ad = {}
    for line in lines:
        name, equals, value = line.partition(b"=")
        if equals and name.strip():
            ad[name.strip().lower()] = line_of(name.strip(), value.strip())
    return ad


def value_of(ad: Ad, name: str) -> bytes:
    """Return the literal of an attribute; empty if it is missing."""
    return ad.get(name.lower().encode(), b"").partition(b" = ")[2]


def string_of(ad: Ad, name: str) -> bytes | None:
    return unquoted(value_of(ad, name))


def text_of(ad: Ad, name: str) -> str:
    """Return a string attribute as text without NUL or invalid bytes; empty if it is missing."""
    return (string_of(ad, name) or b"").decode("utf-8", "backslashreplace").replace("\0", "\\x00")


def number_of(ad: Ad, name: str) -> float | None:
    value = value_of(ad, name)
    return float(value) if _NUMBER.fullmatch(value) else None


def integer_of(ad: Ad, name: str) -> int | None:
    """Return the integer part of a number; None if it is missing or exceeds 64 bits."""
    number = number_of(ad, name)
    if number is not None and abs(number) < 2**63:
        return int(number)
    return None


def truth_of(ad: Ad, name: str) -> bool | None:
    return _TRUTH.get(value_of(ad, name).lower())


def quoted(string: bytes) -> bytes:
    """Return a string literal; only quotes are escaped."""
    return b'"' + string.replace(b'"', b'\\"') + b'"'


def unquoted(value: bytes) -> bytes | None:
    """Return the content of a string literal; None for anything else."""
    inner = value[1:-1]
    if len(value) < 2 or not value.startswith(b'"') or not value.endswith(b'"'):
        return None
    if b'"' in inner.replace(b'\\"', b""):
        return None
    return inner.replace(b'\\"', b'"')
