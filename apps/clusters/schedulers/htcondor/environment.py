"""Parse and write environments in HTCondor's two syntaxes.

`Environment` (V2): `A=1 B='two words' C='it''s'`, split at blanks outside single quotes; quotes are
doubled. `Env` (V1): `A=1;B=two words`, split at `;` or `EnvDelim`, without escapes.
"""

import re
from collections.abc import Iterable

from apps.clusters.schedulers.environment import name_and_value
from apps.clusters.schedulers.htcondor.classads import Ad, string_of

Variable = tuple[bytes, bytes]

_PART = re.compile(rb"[^' \t\r\n]+|'(?:[^']|'')*'")
_TO_QUOTE = re.compile(rb"[' \t\r\n]")


def variables_of(ad: Ad) -> tuple[Variable, ...]:
    """Return the variables of a job; the last value of a name counts.

    Raises `ValueError` for unbalanced quotes.
    """
    text = string_of(ad, "Environment")
    if text is not None:
        return tuple(dict(read_v2(text)).items())
    delimiter = (string_of(ad, "EnvDelim") or b";")[:1]
    return tuple(dict(read_v1(string_of(ad, "Env") or b"", delimiter)).items())


def read_v1(text: bytes, delimiter: bytes) -> list[Variable]:
    pairs = []
    for raw in text.split(delimiter):
        if part := raw.lstrip(b" \t\r\n"):
            pairs.append(name_and_value(part))
    return pairs


def read_v2(text: bytes) -> list[Variable]:
    """Parse the new syntax. Raises `ValueError`."""
    entries: list[list[bytes]] = []
    position = 0
    in_entry = False
    while position < len(text):
        if text[position] in b" \t\r\n":
            position += 1
            in_entry = False
            continue

        part = _PART.match(text, position)
        if part is None:
            raise ValueError("a single quote of the environment is not closed")
        if not in_entry:
            entries.append([])
        entries[-1].append(
            part[0][1:-1].replace(b"''", b"'") if part[0].startswith(b"'") else part[0]
        )
        position = part.end()
        in_entry = True
    return [name_and_value(b"".join(parts)) for parts in entries]


def write_v1(variables: Iterable[Variable], delimiter: bytes) -> bytes:
    return delimiter.join(name + b"=" + value for name, value in variables)


def write_v2(variables: Iterable[Variable]) -> bytes:
    entries = []
    for name, value in variables:
        entry = name + b"=" + value
        if _TO_QUOTE.search(entry):
            entry = b"'" + entry.replace(b"'", b"''") + b"'"
        entries.append(entry)
    return b" ".join(entries)
