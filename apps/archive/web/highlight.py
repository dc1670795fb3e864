"""Syntax highlighting of scripts: Pygments finds tokens, the portal writes escaped HTML.

A lexer gets at most `SECONDS` of CPU time per script; the rest of the script is not highlighted. It
runs in a process that is killed if a single token takes longer: then nothing is highlighted.
"""

import re
import time
from collections.abc import Iterator, Sequence

from django.utils.html import escape
from django.utils.safestring import SafeString
from pygments.lexer import Lexer
from pygments.lexers.perl import PerlLexer
from pygments.lexers.python import PythonLexer
from pygments.lexers.shell import BashLexer, TcshLexer
from pygments.token import Comment, Keyword, Name, Number, String

from apps.core.bounded_pool import POOL, BudgetExceeded

SECONDS = 0.25
KILL_SECONDS = 1.0
_LEXERS: list[tuple[str, type[Lexer]]] = [
    ("python", PythonLexer),
    ("perl", PerlLexer),
    ("csh", TcshLexer),
]
#: The first match for a token counts; the classes are in static/opsportal/css/logs.css.
_CLASSES = [
    (String.Interpol, "variable"),
    (Comment, "comment"),
    (String, "string"),
    (Keyword, "keyword"),
    (Name.Builtin, "keyword"),
    (Name.Variable, "variable"),
    (Number, "number"),
]
_DIRECTIVE = re.compile(r"#(SBATCH|PBS|BSUB|\$) ")


def highlight(lines: Sequence[str]) -> list[SafeString]:
    """Return each line as HTML, without colours if the lexer takes too long."""
    try:
        return [
            SafeString(line)
            for line in POOL.call(html_lines, list(lines), SECONDS, seconds=KILL_SECONDS)
        ]
    except BudgetExceeded:
        return [escape(line) for line in lines]


def html_lines(lines: Sequence[str], seconds: float) -> list[str]:
    """Return each line as HTML.

    The lexer stops after `seconds` of CPU time, unless a single rule backtracks, which can take
    minutes.
    """
    first_line = lines[0] if lines else ""
    lexer = next(
        (lexer for name, lexer in _LEXERS if first_line.startswith("#!") and name in first_line),
        BashLexer,
    )
    shown: list[list[str]] = [[]]
    for css, text in _pieces("\n".join(lines), lexer(), seconds):
        for number, part in enumerate(text.split("\n")):
            if number:
                shown.append([])
            if part:
                shown[-1].append(f'<i class="{css}">{escape(part)}</i>' if css else escape(part))
    return ["".join(parts) for parts in shown]


def _pieces(text: str, lexer: Lexer, seconds: float) -> Iterator[tuple[str, str]]:
    """Yield CSS class and text of each token; together they are the whole text."""
    end = time.process_time() + seconds
    offset = 0
    for count, (start, kind, value) in enumerate(lexer.get_tokens_unprocessed(text)):
        if start != offset or (count % 50 == 49 and time.process_time() > end):
            break
        offset += len(value)
        css = next((css for token, css in _CLASSES if kind in token), "")
        if kind in Comment and _DIRECTIVE.match(value):
            css = "directive"
        yield css, value
    if offset < len(text):
        yield "", text[offset:]
