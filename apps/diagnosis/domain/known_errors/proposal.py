"""Propose a known error from a line of a log: a pattern that masks variable parts, and an ID."""

import re

from apps.diagnosis.engine.formats.plain_lines import peel

LONGEST = 300
#: Parts that vary from job to job, most specific first, each with its pattern and replacement.
_MASKS = (
    ("url", r"[a-z][a-z0-9+.\-]{1,20}://[^\s'\"<>)]{1,300}", r"\S{1,300}"),
    ("path", r"(?:~|\.{1,2})?/[\w.@%+:~\-]{1,100}(?:/[\w.@%+:~\-]{0,100}){0,40}", r"\S{1,300}"),
    (
        "clock",
        r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+\-]\d\d:?\d\d)?",
        r"[\d:T .,Z+\-]{1,40}",
    ),
    ("uuid", r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", r"[0-9a-f\-]{36}"),
    ("address", r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b", r"[\d.:]{1,21}"),
    (
        "host",
        r"\b[a-z][a-z0-9\-]{0,62}(?:\.[a-z0-9\-]{1,62}){1,6}\.[a-z]{2,12}(?::\d{1,5})?\b",
        r"\S{1,200}",
    ),
    ("node", r"\b[a-z]{2,16}-?\d{2,6}(?:-\d{1,4})?\b", r"[\w\-]{1,40}"),
    ("hex", r"\b0x[0-9a-fA-F]{1,16}\b|\b(?=[0-9a-f]*\d)[0-9a-f]{8,64}\b", r"[0-9a-fx]{1,66}"),
    ("number", r"\d{1,30}(?:\.\d{1,30})?", r"[\d.]{1,40}"),
)
_VARIES = re.compile("|".join(f"(?P<{name}>{regex})" for name, regex, _ in _MASKS))
_STANDS_FOR = {name: stands for name, _, stands in _MASKS}
#: Rows of stars, with the blanks between them, and rows of blanks.
_PIECES = re.compile(r"(\*(?:[ \t]*\*)*|[ \t]+)")
_BLANKS = re.compile(r"[ \t]+")
_SPECIAL = re.compile(r"([.^$*+?{}\[\]\\|()])")


def pattern_of(line: str) -> str:
    """Return a pattern that matches this line and similar ones; "" for a line without words."""
    message = peel(line).message[:LONGEST].strip()
    parts = []
    end = 0
    for match in _VARIES.finditer(message):
        parts += [
            _SPECIAL.sub(r"\\\1", message[end : match.start()]),
            _STANDS_FOR[str(match.lastgroup)],
        ]
        end = match.end()
    parts.append(_SPECIAL.sub(r"\\\1", message[end:]))
    return "".join(parts) if re.search(r"[A-Za-z]{3}", message) else ""


def pattern_of_template(text: str) -> str:
    """Return a pattern that matches each line with this template; "" for one without words.

    A `*` of the template stands for a part without blanks, several in a row also for the blanks of
    a date. Blanks may be any number: templates have one for each row of them.
    """
    parts = []
    for piece in _PIECES.split(text.replace("\ufffd", "*").strip("* \t")):
        if piece.startswith("*"):
            parts.append(r"\S.{0,300}" if _BLANKS.search(piece) else r"\S{1,300}")
        elif _BLANKS.fullmatch(piece):
            parts.append(r"[ \t]+")
        else:
            parts.append(_SPECIAL.sub(r"\\\1", piece))
    return "".join(parts)


def id_of(line: str, service: str = "") -> str:
    """Return an ID from the service and the first words of a line: `SAMWEB-QUERY-REJECTED`."""
    message = _VARIES.sub(" ", peel(line).message)
    parts = [service, *re.findall(r"[A-Za-z]{4,12}", message)]
    cleaned = [re.sub(r"[^A-Z0-9]", "", part.upper()) for part in parts]
    telling = [part for part in cleaned if part and part not in {"ERROR", "FATAL", "FAILED"}]
    unique = list(dict.fromkeys(telling))
    return "-".join(unique[:3])
