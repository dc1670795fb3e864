"""Inputs made to be slow: what meets the text of jobs must take 200 kB of any of them in a second.

`patterns_of` finds every compiled pattern of some packages, and every literal one in calls of `re`, with the methods
that are used of it. Each runs in a process that is killed, so that a pattern that backtracks fails and does not hang.
"""

import ast
import importlib
import inspect
import pkgutil
import random
import re
import string
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from apps.core.domain.bounded import POOL, BudgetExceeded
from tests.worst_inputs import worst_inputs

SIZE = 200_000
#: Of a processor that other work may slow down; what backtracks takes minutes.
MOST_SECONDS = 1.0
_KILLED_AFTER = 20.0
_METHODS = {"fullmatch", "match", "search", "finditer", "findall", "sub", "subn", "split"}

#: What is repeated: letters, digits, blanks, each sign, openings that never close, prefixes of what is looked for.
PIECES = [
    *("a", "A", "0", "_", " ", "\t", "\n", "\r\n", "\\", "/", "-", "=", ":", ";", ",", ".", "%", "$", "@", "#", "+"),
    *('"', "'", "`", "(", "[", "{", "<", ">", "&", "|", "~", "!", "*", "?", "^", "\0", "é", "\ud800"),
    *("a ", " a", "a\n", " \n", "a=", "a=b ", "A=1,", "A=1;", "'a", '"a', "'a' ", "''", '""', "\\'", '\\"', "\\\\"),
    *("--a", "--a=", "-a ", "a/", "/a", "/tmp/", "../", "20", "2026-11-20 ", "12:00:00", "1-", "1,", "1:", "deadbeef"),
    *("$(", "${", "${a}", "<<a", "<<a\n", "<a>", "&lt;", "[[", "{{", "%%", "%j", "a.b.", "a@b", "://", "a://b:"),
    *("eyJ", "-----BEGIN ", "module load ", "#PBS -o ", "#SBATCH -o ", "BASH_FUNC_", "hash.1/job.1", "<masked:", "if "),
    *("59:", "1h ", "1.", "1_000", "1'", "1e", "@a", "v1", "\u2028", "\ufeff", "\u0130", "{a}", "(a*)*", "_part1of1"),
]


def pumped(piece: str, size: int = SIZE) -> str:
    """Return a text of this size made of a piece; the end fits nothing."""
    return "a" + piece * (size // len(piece)) + "\x01"


def words(size: int = SIZE) -> list[str]:
    """Return texts in which nothing repeats: as one word, after what may look for its end, and with blanks."""
    word = "".join(random.Random(1).choices(string.ascii_lowercase, k=size))
    return [word, "<<" + word, "A=" + word, word.replace("a", " ")]


class Pattern(NamedTuple):
    where: str
    source: Any
    flags: int
    methods: tuple[str, ...]


def patterns_of(*packages: str) -> list[Pattern]:
    """Return the patterns of all modules of these packages, each with the methods used of it."""
    found: dict[tuple[str, Any], Pattern] = {}
    for module in modules_of(*packages):
        tree = ast.parse(Path(module.__file__).read_text())
        methods = _methods(tree)
        for name, pattern in _named_patterns(module):
            used = tuple(sorted(methods.get(name, ()))) or ("search",)
            found[module.__name__, pattern.pattern] = Pattern(
                f"{module.__name__}.{name}", pattern.pattern, pattern.flags, used
            )
        for node in ast.walk(tree):
            if literal := _literal(node):
                method, source = literal
                found.setdefault(
                    (module.__name__, source), Pattern(f"{module.__name__}:{node.lineno}", source, 0, (method,))
                )
    return list(found.values())


def modules_of(*packages: str) -> Iterator[Any]:
    for name in packages:
        package = importlib.import_module(name)
        yield package
        for info in pkgutil.walk_packages(getattr(package, "__path__", []), name + "."):
            if ".migrations" not in info.name:
                yield importlib.import_module(info.name)


def _named_patterns(module: Any) -> Iterator[tuple[str, re.Pattern]]:
    holders = [
        module,
        *(each for each in vars(module).values() if inspect.isclass(each) and each.__module__ == module.__name__),
    ]
    for holder in holders:
        for name, value in list(vars(holder).items()):
            for each in _flat(value):
                if isinstance(each, re.Pattern):
                    yield name, each


def _flat(value: Any, depth: int = 3) -> Iterator[Any]:
    yield value
    if depth and isinstance(value, (list, tuple, set, frozenset)):
        for each in value:
            yield from _flat(each, depth - 1)
    if depth and isinstance(value, dict):
        for pair in value.items():
            yield from _flat(pair, depth - 1)


def _methods(tree: ast.AST) -> dict[str, set[str]]:
    used: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _METHODS:
            owner = node.value
            name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
            used.setdefault(name, set()).add(node.attr)
    return used


def _literal(node: ast.AST) -> tuple[str, Any] | None:
    """Return method and pattern of `re.sub("…", …)` and the like."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
        return None
    owner, first = node.func.value, node.args[0]
    is_re = isinstance(owner, ast.Name) and owner.id == "re" and node.func.attr in _METHODS
    return (node.func.attr, first.value) if is_re and isinstance(first, ast.Constant) else None


def slow_inputs(pattern: Pattern, killed_after: float = _KILLED_AFTER) -> str:
    """Return the first input that takes the pattern longer than `MOST_SECONDS`; empty: none does."""
    try:
        return POOL.call(_slow_input, pattern.source, pattern.flags, pattern.methods, seconds=killed_after)
    except BudgetExceeded as error:
        return f"some input: {error}"


def _slow_input(source: Any, flags: int, methods: Sequence[str]) -> str:
    """Try a tenth of each input first: where that takes no time, neither does the whole, be it by its square."""
    pattern = re.compile(source, flags)
    for method in methods:
        for piece in PIECES:
            for size in (SIZE // 10, SIZE):
                seconds = _seconds_of(pattern, method, pumped(piece, size))
                if seconds < MOST_SECONDS / 100:
                    break
            if seconds > MOST_SECONDS:
                return f"{method} of {piece!r}: {seconds:.2f} s"
        for text in [*words(), *worst_inputs(pattern)]:
            if _seconds_of(pattern, method, text[: SIZE // 20] + text[-SIZE // 20 :]) < MOST_SECONDS / 100:
                continue
            if (seconds := _seconds_of(pattern, method, text)) > MOST_SECONDS:
                return f"{method} of {text[:4]!r}…: {seconds:.2f} s"
    return ""


def _seconds_of(pattern: re.Pattern, method: str, text: str) -> float:
    subject: Any = text.encode("utf-8", "surrogatepass") if isinstance(pattern.pattern, bytes) else text
    began = time.process_time()
    if method in ("finditer", "findall", "split", "sub", "subn"):
        for _ in pattern.finditer(subject):
            pass
    else:
        getattr(pattern, method)(subject)
    return time.process_time() - began


def slow_text_of(parser: Callable[[str], object]) -> str:
    """Return the first text that takes a parser, importable without Django, too long; empty: none does."""
    try:
        return POOL.call(slow_text_here, parser, seconds=60.0)
    except BudgetExceeded as error:
        return f"some text: {error}"


def slow_text_here(parser: Callable[[str], object]) -> str:
    """Do the same in this process. What is no input of a parser is refused: that it is soon is what counts."""
    for text in (*map(pumped, PIECES), *(pumped(piece)[1:] for piece in PIECES), *words()):
        if (taken := seconds_of(parser, text)) > MOST_SECONDS:
            return f"{text[:12]!r}…: {taken:.2f} s"
    return ""


def seconds_of(
    parser: Callable[[str], object], text: str, refusals: tuple[type[Exception], ...] = (Exception,)
) -> float:
    """Return the processor time of a parser; where a tenth of the text takes none, neither does the whole."""
    for part in (text[: SIZE // 20] + text[-SIZE // 20 :], text):
        began = time.process_time()
        with suppress(*refusals):
            parser(part)
        if (taken := time.process_time() - began) < MOST_SECONDS / 100:  # the whole takes less, be it by its square
            break
    return taken
