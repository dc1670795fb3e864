"""Measure the parsers of job texts: 200 kB of the worst input may take a second.

CPU time of this process is measured, so other work on the machine changes no result. A call that
takes too long is stopped by a signal, which interrupts regular expressions, too. `patterns_of`
finds every compiled pattern of some packages, and every literal one in calls of `re`, with the
methods used.
"""

import ast
import gc
import importlib
import inspect
import math
import pkgutil
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.worst_inputs import PIECES, SIZE, Input, long_words, pumped, worst_inputs

MOST_SECONDS = 1.0
#: An input is tried in these sizes, until one proves that `SIZE` is fast, or takes too long.
_SIZES = (2_000, 20_000, 60_000, SIZE)
#: A loop that is run beside what is measured, and its time on an idle machine of 2025.
_LOOP_STEPS, _LOOP_SECONDS = 100_000, 0.02
Refused = tuple[type[Exception], ...]
_METHODS = {"fullmatch", "match", "search", "finditer", "findall", "sub", "subn", "split"}


class TooSlow(BaseException):
    """The call took too long. No `except Exception` in the measured code catches this."""


class Pattern(NamedTuple):
    where: str
    source: Any
    flags: int
    methods: tuple[str, ...]


@contextmanager
def within(seconds: float = MOST_SECONDS, what: str = "") -> Iterator[None]:
    """Fail when the body takes more CPU time than this on an idle processor; see `seconds_of`.

    It is stopped when it takes ten times that.
    """
    with _stopped_after(10 * seconds, what):
        took = _Took()
        yield
        if (needed := took.seconds()) > seconds:
            raise TooSlow(f"{needed:.2f} s instead of {seconds:g} s: {what}")


@contextmanager
def _stopped_after(seconds: float, what: str = "") -> Iterator[None]:
    """Stop the body, and fail, when it takes more CPU time than this."""

    def stop(*_: object) -> None:
        raise TooSlow(f"more than {seconds:g} s: {what}")

    old = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)


def seconds_of(call: Callable[[], object]) -> float:
    """Return the CPU time of a call, in seconds of a processor that does nothing else.

    A processor that is slow, or shared, is slow for a known loop too: the time is a ratio to the
    loop's time just before and after.
    """
    gc.freeze()  # as in `slow_input`
    try:
        took = _Took()
        call()
        return took.seconds()
    finally:
        gc.unfreeze()


class _Took:
    """The CPU time of this thread since it was made, in seconds of a processor that does nothing
    else.
    """

    def __init__(self) -> None:
        self._loop_before = _loop_seconds()
        self._began = time.thread_time()

    def seconds(self) -> float:
        took = time.thread_time() - self._began
        return took / max(self._loop_before, _loop_seconds()) * _LOOP_SECONDS


def _loop_seconds() -> float:
    began = time.thread_time()
    counts: dict[int, str] = {}
    for number in range(_LOOP_STEPS):
        counts[number % 1000] = f"{number}"
    return time.thread_time() - began


def slow_input(
    function: Callable[[str], object], inputs: Iterable[Input], refused: Refused = ()
) -> str:
    """Return the first input that takes a function too long; empty: none does.

    It may raise what `refused` names.
    """
    # What earlier tests left in memory would else be looked through again while this one is timed.
    gc.freeze()
    try:
        return next((str(text) for text in inputs if not is_fast(function, text, refused)), "")
    finally:
        gc.unfreeze()


def is_fast(function: Callable[[str], object], text: Input, refused: Refused = ()) -> bool:
    """Tell whether `SIZE` characters of an input take a function less than `MOST_SECONDS`.

    A smaller size proves it if `SIZE` were fast even with a time that grows by the square of the
    size, or clearly faster than it grew so far. A time that grows faster than the square is seconds
    at the first size already.
    """
    before: tuple[int, float] | None = None
    for size in _SIZES:
        seconds = _seconds_of(function, text.text(size), refused)
        if seconds > MOST_SECONDS:
            # A processor that other work shares is slower for a moment; slow code is slow twice.
            seconds = _seconds_of(function, text.text(size), refused)
        if seconds > MOST_SECONDS:
            return False
        power = 2.0
        if before is not None:
            grew = math.log(max(seconds, 1e-9) / max(before[1], 1e-9)) / math.log(size / before[0])
            power = min(2.0, max(1.0, grew) + 0.5)
        if seconds * (SIZE / size) ** power < MOST_SECONDS:
            return True
        before = (size, seconds)
    return True


def _seconds_of(function: Callable[[str], object], text: str, refused: Refused) -> float:
    """Return the CPU time of a call; endless, if it was stopped,
    as the timer of some kernels is early.
    """
    began = time.process_time()
    try:
        with _stopped_after(2 * MOST_SECONDS), suppress(*refused):
            function(text)
    except TooSlow:
        return math.inf
    return time.process_time() - began


def slow_input_of_pattern(pattern: Pattern) -> str:
    """Return the first input that takes a method of a pattern too long; empty: none does."""
    compiled = re.compile(pattern.source, pattern.flags)
    inputs = [*map(pumped, PIECES), *long_words(), *worst_inputs(compiled)]
    for method in pattern.methods:
        if text := slow_input(_reader(compiled, method), inputs):
            return f"{method}: {text}"
    return ""


def slow_inputs_of(package: str) -> dict[str, str]:
    """Return the patterns of a package that some input takes too long, by where they stand,
    with that input.
    """
    inputs = {pattern.where: slow_input_of_pattern(pattern) for pattern in patterns_of(package)}
    return {where: text for where, text in inputs.items() if text}


def _reader(pattern: re.Pattern, method: str) -> Callable[[str], object]:
    """Return a function that uses a method of a pattern with a text."""

    def read(text: str) -> None:
        subject: Any = (
            text.encode("utf-8", "surrogatepass") if isinstance(pattern.pattern, bytes) else text
        )
        if method in {"finditer", "findall", "split", "sub", "subn"}:
            for _ in pattern.finditer(subject):
                pass
        else:
            getattr(pattern, method)(subject)

    return read


def slow_input_of_parser(parser: Callable[[str], object]) -> str:
    """Return the first input that takes a parser too long; empty: none does. It may refuse any."""
    pieces = [pumped(piece) for piece in PIECES]
    inputs = [*pieces, *(text._replace(before="") for text in pieces), *long_words()]
    return slow_input(parser, inputs, refused=(Exception,))


def patterns_of(*packages: str) -> list[Pattern]:
    """Return the patterns of all modules of these packages,
    each with the methods that any of the modules calls on it.
    """
    names: dict[tuple[Any, int], str] = {}
    used: dict[tuple[Any, int], set[str]] = {}
    for module in modules_of(*packages):
        tree = ast.parse(Path(module.__file__).read_text())
        methods = _methods(tree)
        for name, pattern in _named_patterns(module):
            key = (pattern.pattern, pattern.flags)
            names.setdefault(key, f"{module.__name__}.{name}")
            used.setdefault(key, set()).update(methods.get(name, ()))
        for node in ast.walk(tree):
            if literal := _literal(node):
                method, source = literal
                key = (source, re.compile(source).flags)
                names.setdefault(key, f"{module.__name__}:{node.lineno}")
                used.setdefault(key, set()).add(method)
    return [Pattern(names[key], *key, tuple(sorted(used[key])) or ("search",)) for key in names]


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
        *(
            value
            for value in vars(module).values()
            if inspect.isclass(value) and value.__module__ == module.__name__
        ),
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
            name = (
                owner.id
                if isinstance(owner, ast.Name)
                else owner.attr
                if isinstance(owner, ast.Attribute)
                else ""
            )
            used.setdefault(name, set()).add(node.attr)
    return used


def _literal(node: ast.AST) -> tuple[str, Any] | None:
    """Return method and pattern of `re.sub("…", …)` and the like."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
        return None
    owner, first = node.func.value, node.args[0]
    is_re = isinstance(owner, ast.Name) and owner.id == "re" and node.func.attr in _METHODS
    return (node.func.attr, first.value) if is_re and isinstance(first, ast.Constant) else None
