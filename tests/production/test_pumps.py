"""Every parser of the domain processes 200 kB of its worst input in less than half a second."""

import ast
import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path

import pytest

from apps.core.domain.quantities import parse_count, parse_duration, parse_size
from apps.production import domain
from apps.production.domain.checks.rules.declared import ranges
from apps.production.domain.content.serialization import read_plain
from apps.production.domain.discussion import mentions_in
from apps.production.domain.lineage.clones import next_name
from apps.production.domain.types.arguments import TYPES, Argument, runs_in
from apps.production.domain.types.declaration import general, read_declaration
from apps.production.domain.yaml_text import parse_yaml
from tests.pumps import seconds_of

SIZE = 200_000
SECONDS = 0.5
REFUSALS = (ValueError, LookupError)
DOMAIN = [
    importlib.import_module(found.name) for found in pkgutil.walk_packages(domain.__path__, f"{domain.__name__}.")
]


def filled(unit: str, end: str = "") -> str:
    return (unit * (SIZE // len(unit) + 1))[: SIZE - len(end)] + end


def seconds(call: Callable[[str], object], text: str) -> float:
    """Return the processor time of a call, the better of two; refused input counts too."""
    taken = seconds_of(call, text, REFUSALS)
    return taken if taken < SECONDS else min(taken, seconds_of(call, text, REFUSALS))


HOSTILE = [
    *("59:", "1", "1 ", "1,", "1-", "1-2,", "1h", "1 h ", "1.", "1_000", "1'", "1e", "9", "e", "@a", "@", "v1", "_v1"),
    *(" ", "\n", "1\n", "a\n", "\u2028", "\ufeff", "\u0130", "é", "{a}", "{", "a{1000}", "(a*)*", "(", "_part1of1"),
]
YAML = [
    *(
        "a: 59:",
        "[",
        "{",
        "? ",
        "&a ",
        "*a,",
        "<<: ",
        "!a ",
        '"\\"',
        ": ",
        ":",
        "- ",
        "#",
        "'",
        "%",
        "---\n",
        "--- a\n",
    ),
    *("a: |\n x\n", "a: b\n  c\n", "\t", "k: 1\n", "[1,", "a: yes\n", "a: 2026-01-01\n", "a: ~\n", "a: !!int 1\n"),
]


def test_patterns_are_constants_of_their_modules():
    """A pattern inside a function would escape `tests.test_pumps`."""
    for module in DOMAIN:
        for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re."):
                assert ast.unparse(node.func) == "re.compile", f"{module.__name__}:{node.lineno}"


@pytest.mark.parametrize("unit", HOSTILE)
@pytest.mark.parametrize(
    "call", [mentions_in, next_name, runs_in, ranges, parse_count, parse_duration, parse_size], ids=lambda f: f.__name__
)
def test_parsers(call, unit):
    for text in (filled(unit), filled(unit, "!"), f"1 {filled(unit)}"):
        assert seconds(call, text) < SECONDS


@pytest.mark.parametrize("type_", TYPES)
def test_arguments(type_):
    argument = Argument(name="x", type=type_, choices=("a",) if type_ == "choice" else ())
    for unit in HOSTILE:
        for text in (filled(unit), filled(unit, "e9")):
            assert seconds(argument.read, text) < SECONDS, unit
            assert seconds(argument.parse, text) < SECONDS, unit


@pytest.mark.parametrize("unit", [*YAML, *HOSTILE])
def test_yaml(unit):
    for text in (filled(unit), f"a: {filled(unit)}", f"[&a x, {filled(unit)}"):
        assert seconds(parse_yaml, text) < SECONDS


@pytest.mark.parametrize("unit", [*YAML, *HOSTILE])
@pytest.mark.parametrize("frame", ["%s", "title: %s", "arguments: [%s]", "stages: {s: {title: a, command: ['%s']}}"])
def test_declarations(frame, unit):
    """One declaration took 45 seconds: each fault of a word of many placeholders repeated the word."""
    assert seconds(lambda text: read_declaration(frame % text[:99_000], key="t"), filled(unit)) < SECONDS


MANY = 20_000
PLAIN = {
    "names": {f"k{i}": 1 for i in range(MANY)},
    "arguments": {"arguments": {f"k{i}": 1 for i in range(MANY)}},
    "stages": {"stages": [1] * MANY},
    "names of a stage": {"stages": [{f"k{i}": 1 for i in range(MANY)}]},
    "services": {"stages": [{"services": [1] * MANY}]},
    "duration": {"stages": [{"wall_seconds": filled("59:")}]},
    "text": {"title": filled("a")},
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_data(name):
    assert seconds(lambda _: read_plain(PLAIN[name], general()), "") < SECONDS


def test_long_number_is_refused():
    with pytest.raises(ValueError, match="Enter a number"):
        Argument(name="x", type="number").read("9" * 1000 + "e999999999999999999")
