"""Why RE2 does not take a regular expression that a user wrote, in words. Needs no settings."""

import re
from typing import Any

import re2

#: So many instructions an expression may have once it is compiled. The largest of the shipped known
#: errors has 3,356.
MOST_INSTRUCTIONS = 4_000
_NOT_LINEAR = re.compile(r"\(\?(?:=|!|<=|<!|P=)|\\[1-9]")


def compile_fault(error: re2.error, regex: str) -> str:
    """Return what RE2 says of an expression that does not compile."""
    why = error.args[0] if error.args else ""
    if isinstance(why, bytes):
        text = why.decode(errors="replace")
    else:
        text = str(why)
    text = text.replace(
        "(?m)", "", 1
    )  # that of the caller: patterns and searches are for whole lines
    hint = ""
    if _NOT_LINEAR.search(regex):
        hint = " (RE2 has no lookaround and no back-references)"
    return text + hint


def size_fault(compiled: Any) -> str:
    """Return why an expression is too large once it is compiled, or an empty text."""
    if compiled.programsize <= MOST_INSTRUCTIONS:
        return ""
    return (
        f"is too costly: it compiles to {compiled.programsize:,} instructions of at most "
        f"{MOST_INSTRUCTIONS:,}. "
        "Use shorter repetitions, such as .{0,20}"
    )
