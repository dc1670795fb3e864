"""Text of scripts and environments for pages, from arbitrary bytes."""

import re
from dataclasses import dataclass

from apps.clusters.schedulers.environment import variables_in
from apps.core.domain.hidden_characters import HIDDEN

SHOWN_BYTES = 200_000
SHOWN_LINES = 5_000
SHOWN_VARIABLES = 5_000

_MASKED = re.compile(r"<masked:[0-9a-f]{16}>")


@dataclass(frozen=True, slots=True)
class ShownScript:
    """The beginning of a script by lines; `whole` if nothing is left out."""

    lines: list[str]
    whole: bool


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable; `masked` if the value is the fingerprint of a secret."""

    name: str
    value: str
    masked: bool


@dataclass(frozen=True, slots=True)
class ShownEnvironment:
    """The variables by name; `whole` if none is left out."""

    variables: list[Variable]
    whole: bool


def show_script(start: bytes, *, size_bytes: int) -> ShownScript:
    """Return the lines to show of a script of `size_bytes` that starts with `start`."""
    lines = start[:SHOWN_BYTES].split(b"\n")
    if lines[-1] == b"" and len(lines) > 1:
        lines.pop()
    whole = size_bytes <= min(len(start), SHOWN_BYTES) and len(lines) <= SHOWN_LINES
    return ShownScript([escape_unprintable(line) for line in lines[:SHOWN_LINES]], whole)


def show_environment(start: bytes, *, size_bytes: int) -> ShownEnvironment:
    """Return the variables to show, by name, of an environment that starts with `start`.

    `size_bytes` is the size of the whole environment.
    """
    raw_pairs = list(variables_in(start[:SHOWN_BYTES]))
    printable_pairs = []
    for name, value in raw_pairs[:SHOWN_VARIABLES]:
        printable_pairs.append((escape_unprintable(name), escape_unprintable(value)))
    pairs = sorted(printable_pairs)
    variables = [Variable(name, value, bool(_MASKED.fullmatch(value))) for name, value in pairs]
    whole = size_bytes <= min(len(start), SHOWN_BYTES) and len(raw_pairs) <= SHOWN_VARIABLES
    return ShownEnvironment(variables, whole)


def escape_unprintable(raw: bytes) -> str:
    """Return bytes as text, with invalid UTF-8 and invisible characters as escapes."""
    text = raw.decode("utf-8", "backslashreplace")
    return HIDDEN.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)
