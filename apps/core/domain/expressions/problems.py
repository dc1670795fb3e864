"""Explain why RE2 rejects a regular expression of a user. Needs no settings."""

import re
from typing import Any

import re2

#: Maximum instructions of a compiled expression. The largest of the shipped known errors has 3,356.
MOST_INSTRUCTIONS = 4_000
_NOT_LINEAR = re.compile(r"\(\?(?:=|!|<=|<!|P=)|\\[1-9]")


def compile_fault(error: re2.error, regex: str) -> str:
    """Return RE2's error for an expression that does not compile."""
    why = error.args[0] if error.args else ""
    if isinstance(why, bytes):
        text = why.decode(errors="replace")
    else:
        text = str(why)
    # The caller has added `(?m)`, because patterns and searches match whole lines.
    text = text.replace("(?m)", "", 1)
    hint = ""
    if _NOT_LINEAR.search(regex):
        hint = " (RE2 has no lookaround and no back-references)"
    return text + hint


def size_fault(compiled: Any) -> str:
    """Return why a compiled expression is too large; "" if it is not."""
    if compiled.programsize <= MOST_INSTRUCTIONS:
        return ""
    return (
        f"is too costly: it compiles to {compiled.programsize:,} instructions of at most "
        f"{MOST_INSTRUCTIONS:,}. "
        "Use shorter repetitions, such as .{0,20}"
    )
