"""Lines as a person would read them: without progress bars, colours, NULs, and loggers' prefixes.

Cleaning keeps the number of lines, so that line numbers in the clean text are those in the file.
"""

import codecs
import re
from functools import lru_cache
from typing import NamedTuple

_ANSI = re.compile(
    rb"\x1b(?:\[[0-?]{0,30}[ -/]{0,4}[@-~]|\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)|[@-Z\\-_=>])"
)
_LINE_END = re.compile(rb"(?<!\r)\r++(?=\n|\Z)")
_MESSAGE = re.compile(r'"(?:message|msg|log|error|event)"\s*:\s*"((?:[^"\\]|\\.){1,2000})"')
_LEVEL = (
    r"TRACE|DEBUG|VERBOSE|INFO|INFORMATION|NOTICE|NOTE|WARN|WARNING"
    r"|ERROR|ERR|CRITICAL|CRIT|FATAL|SEVERE|ALERT|EMERG"
)
#: Prefixes that loggers, MPI launchers and containers write before a message. Each is bounded and
#: needs its own delimiter.
_CLOCK = r"\d\d:\d\d(?::\d\d)?(?:[.,]\d{1,9})?"
_PREFIXES = re.compile(
    r"""\s{0,200}(?:
      \[?(?:[A-Z][a-z]{2},?\s)?\d{4}[-/.]\d\d[-/.]\d\d
        [T\s_:]+CLOCK\s?(?:Z|[+-]\d\d:?\d\d|UTC|ZONE)?\]?[:,]?
    | \[?\d{1,2}[-/ ](?:[A-Z][a-z]{2}|\d\d)[-/ ]\d{2,4}[T\s:]+CLOCK(?:\sZONE)?\]?[:,]?
    | \[?(?:[A-Z][a-z]{2},?\s)?[A-Z][a-z]{2}[-\s]+\d\d?[\s,]+
        (?:\d{4}[\s,]+)?CLOCK(?:\sZONE)?(?:\s\d{4})?\]?[:,]?
    | \[?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?[:,]?(?=\s)
    | \[\s{0,12}(?P<inner>(?i:LEVEL))\s{0,12}\][:,]?
    | \[\s{0,16}[\w.\-]{1,60}\s{0,16}\](?=\s|:|\[)[:,]?
    | ==\s\w{1,20}:(?=\s)
    | \[(?:rank|[\w.\-]{1,60}:)\s?\d{1,9}(?:,\w{1,10})?(?::\d{1,9})*\][:,]?
    | (?:rank|node|task|worker|step|proc(?:ess)?|thread)[\s_\-]?\d{1,6}\s?(?::|\||\])
    | -?\d{1,6}:(?=\s|[A-Z])
    | [\w.\-]{1,40}\s{1,8}\|(?=\s)
    | [EWIF]\d{4}\s\d\d:\d\d:\d\d\.\d{3,9}\s{1,8}\d{1,9}\s[\w.\-]{1,80}:\d{1,6}\]
    | <\w{1,9}>(?=\s)
    | (?:[>|]\s)
    | [-=\s]{0,8}\[?\(?(?P<mild>[Ww]arning|[Ii]nfo|[Nn]ote|[Dd]ebug|[Hh]int)\)?\]?\s?[:|]
    | [-=\s]{0,8}\[?\(?(?P<level>LEVEL)\)?\]?(?:\s{0,12}[:|\]\-]+|(?=\s))
    )""".replace("LEVEL", _LEVEL)
    .replace("CLOCK", _CLOCK)
    .replace("ZONE", r"(?:UTC|GMT|[A-Z]{2,3}T)\b"),
    re.VERBOSE,
)
_LEVEL_WITHIN = re.compile(
    rf"^(?:[\w.()\[\]/]{{1,80}}[\s|:\-]{{1,12}}){{0,5}}[\[(<]?(?P<level>{_LEVEL})\b(?![\w.(/=])"
)
#: Python's warnings: the category, and the line of source code below it.
_WARNING = re.compile(r"^\S{0,300}:\d{1,7}: \w{0,60}Warning:|^\w{0,60}Warning:|\bwarnings\.warn\(")
LINE_CHARACTERS = 2000
BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF8)
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\b\f\x1b")) + b"\x7f"


class PlainLine(NamedTuple):
    """A line without its prefixes: its indent, its message, and its level in capitals or ""."""

    indent: int
    message: str
    level: str


def clean(data: bytes) -> bytes:
    """Return lines as a terminal would show them: the same number, none longer than before."""
    if b"\x00" in data:
        data = data.replace(b"\x00", b"")
    for mark in BOMS:
        data = data.removeprefix(mark)
    if b"\x1b" in data:
        data = _ANSI.sub(b"", data)
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
        if b"\r" in data:
            *overwritten, last = _LINE_END.sub(b"", data).split(b"\r")
            data = b"".join(part[: part.rfind(b"\n") + 1] for part in overwritten) + last
    return data


def is_clean(data: bytes, begin: int, end: int) -> bool:
    """Return whether `clean` would leave part of a log unchanged, except for byte order marks."""
    return all(data.find(control, begin, end) < 0 for control in (b"\x00", b"\x1b", b"\r"))


def is_binary(data: bytes) -> bool:
    """Return whether a sample of a log is binary: more than a tenth are control characters."""
    sample = clean(data)
    return len(sample.translate(None, _CONTROL)) < 0.9 * len(sample)


@lru_cache(maxsize=32)  # a line is read first as part of a trace, then alone
def peel(text: str) -> PlainLine:
    """Strip the prefixes of a line; a message that consists only of prefixes stays unchanged."""
    text = text[:LINE_CHARACTERS].rstrip()
    level = ""
    position = 0
    if text.startswith("{") and (json_message := _MESSAGE.search(text)):
        level = next(
            (
                word
                for word in ("ERROR", "FATAL", "CRITICAL", "WARN", "INFO")
                if word in text.upper()
            ),
            "",
        )
        text = json_message[1].replace("\\n", " ")
    for _ in range(6):
        match = _PREFIXES.match(text, position)
        if not match or match.end() >= len(text):
            break
        level = match["level"] or match["mild"] or match["inner"] or level
        position = match.end()
    message = text[position:]
    if _WARNING.search(message):
        level = "WARNING"
    if not level and (within := _LEVEL_WITHIN.match(message.lstrip())):
        level = within["level"]
    stripped = message.lstrip()
    return PlainLine(len(message) - len(stripped), stripped, level.upper())
