"""Colours for scripts: Pygments finds what is what, the portal's own few classes and escaping make HTML of it.

A lexer gets no more than `SECONDS` for a script; what is left has no colours.
"""

import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

from django.utils.html import escape
from django.utils.safestring import SafeString
from pygments.lexer import Lexer
from pygments.lexers.perl import PerlLexer
from pygments.lexers.python import PythonLexer
from pygments.lexers.shell import BashLexer, TcshLexer
from pygments.token import Comment, Keyword, Name, Number, String

SECONDS = 0.25
_LEXERS: list[tuple[str, type[Lexer]]] = [("python", PythonLexer), ("perl", PerlLexer), ("csh", TcshLexer)]
#: The first that a token belongs to; the classes are in look.css.
_CLASSES = [
    (String.Interpol, "v"),
    (Comment, "c"),
    (String, "s"),
    (Keyword, "k"),
    (Name.Builtin, "k"),
    (Name.Variable, "v"),
    (Number, "n"),
]
_DIRECTIVE = re.compile(r"#(SBATCH|PBS|BSUB|\$) ")


def coloured(lines: Sequence[str]) -> list[SafeString]:
    shown: list[list[str]] = [[]]
    for css, text in _pieces("\n".join(lines), _lexer(lines[0] if lines else "")):
        for number, part in enumerate(text.split("\n")):
            if number:
                shown.append([])
            if part:
                shown[-1].append(f'<i class="{css}">{escape(part)}</i>' if css else escape(part))
    return [SafeString("".join(parts)) for parts in shown]


def _lexer(first_line: str) -> Lexer:
    if first_line.startswith("#!"):
        for name, lexer in _LEXERS:
            if name in first_line:
                return lexer()
    return BashLexer()


def _pieces(text: str, lexer: Lexer) -> Iterator[tuple[str, str]]:
    """Yield CSS class and text of each token; in all they are the whole text."""
    end, at = time.monotonic() + SECONDS, 0
    for count, (start, kind, value) in enumerate(lexer.get_tokens_unprocessed(text)):
        if start != at or (count % 50 == 49 and time.monotonic() > end):
            break
        at += len(value)
        yield _css(kind, value), value
    if at < len(text):
        yield "", text[at:]


def _css(kind: Any, value: str) -> str:
    if kind in Comment and _DIRECTIVE.match(value):
        return "d"
    return next((css for token, css in _CLASSES if kind in token), "")
