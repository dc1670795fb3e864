"""Worst inputs made from the structure of a pattern or a format, and a clock that fails what is slow on them."""

import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from re import _constants as sre
from re import _parser as parser

BYTES = 200_000
SECONDS = 0.5
#: Characters that structures of text are made of.
UNITS = [
    "a",
    "0",
    " ",
    "\n",
    "\t",
    "\0",
    "(",
    "[",
    "{",
    '"',
    "'",
    "\\",
    "/",
    "=",
    "-",
    ".",
    ",",
    "<",
    "&",
    "%",
    "$",
    "é",
]


class TooSlow(AssertionError):
    """It took longer than it may."""


@contextmanager
def within(seconds: float = SECONDS, what: str = "") -> Iterator[None]:
    """Fail, and do not wait, when the body takes longer; a machine under load gets the time of its own process."""

    def stop(*_: object) -> None:
        raise TooSlow(f"more than {20 * seconds} s: {what}")

    old = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 20 * seconds)
    begun = time.process_time()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    if (taken := time.process_time() - begun) > seconds:
        raise TooSlow(f"{taken:.2f} s: {what}")


def shapes(*words: str, size: int = BYTES) -> list[str]:
    """Text of `size` characters in the usual shapes, and of the words of a format: alone, in lines, and cut off."""
    found = [(unit * size)[:size] for unit in UNITS]
    found += [("a" * 70 + "\n") * (size // 71), ("a\n" * (size // 2)), ("a " * (size // 2))]
    for word in words:
        found += [(word * size)[:size], f"{word}\n" * (size // (len(word) + 1)), word + "a" * size, word + " " * size]
        found += [(word[:-1] * size)[:size]] if len(word) > 1 else []
    return found


def worst_inputs(pattern: re.Pattern[str] | re.Pattern[bytes]) -> list[str]:
    """Return texts that a pattern matches for long, and then does not match."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    repeats: list[tuple[str, str]] = []
    sample = _sample(parser.parse(source, pattern.flags & ~re.DEBUG & ~re.UNICODE), "", repeats)
    found = [sample * (BYTES // max(1, len(sample))), sample[:-1] * (BYTES // max(1, len(sample) - 1))]
    for before, unit in repeats:
        pumped = unit * (BYTES // max(1, len(unit)))
        found += [pumped, before + pumped, before + pumped + "\0!", pumped + "\n!"]
        if before:
            found.append((before + unit * 3) * (BYTES // len(before + unit * 3)))
    return list(dict.fromkeys(found))


def _sample(nodes: object, before: str, repeats: list[tuple[str, str]]) -> str:
    """Return a text that a parsed pattern may match; note each repeated part with what comes before it."""
    text = ""
    for kind, value in nodes:
        text += _piece(kind, value, before + text, repeats)
    return text


def _piece(kind: object, value: object, before: str, repeats: list[tuple[str, str]]) -> str:
    if kind is sre.LITERAL:
        return chr(value)
    if kind in {sre.NOT_LITERAL, sre.ANY}:
        return "b" if value == ord("a") else "a"
    if kind is sre.IN:
        return _member(value)
    if kind in {sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT}:
        low, high, inner = value
        unit = _sample(inner, before, repeats)
        if high > 1:
            repeats.append((before, unit or "a"))
        return unit * max(low, 1 if high else 0)
    if kind is sre.SUBPATTERN:
        return _sample(value[-1], before, repeats)
    if kind is sre.ATOMIC_GROUP:
        return _sample(value, before, repeats)
    if kind is sre.BRANCH:
        branches = [_sample(branch, before, repeats) for branch in value[1]]
        return max(branches, key=len)
    return ""


def _member(members: list[tuple[object, object]]) -> str:
    categories = {sre.CATEGORY_DIGIT: "0", sre.CATEGORY_SPACE: " ", sre.CATEGORY_WORD: "a"}
    refused = members[0][0] is sre.NEGATE
    for kind, value in members[refused:]:
        if refused:
            continue
        if kind is sre.LITERAL:
            return chr(value)
        if kind is sre.RANGE:
            return chr(value[0])
        if kind is sre.CATEGORY:
            return categories.get(value, "a")
    taken = {chr(value) for kind, value in members if kind is sre.LITERAL}
    return next(letter for letter in "a0x -" if letter not in taken)


def run(function: Callable[[str], object], texts: list[str], name: str) -> None:
    """Run a parser over texts of growing size; what it raises is its own affair, as long as it is quick."""
    for text in texts:
        for size in (BYTES // 100, BYTES // 10, BYTES):
            with within(what=f"{name} on {text[:40]!r}… ({size} characters)"):
                function(text[:size])
