"""Every parser of the domain processes 200 kB of its worst input in less than a second."""

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

from apps.core.domain.quantities import parse_count, parse_duration, parse_size
from apps.production import domain
from apps.production.domain.checks.rules.declared import ranges
from apps.production.domain.content.serialization import read_plain
from apps.production.domain.discussion import mentions_in
from apps.production.domain.lineage.clones import next_name
from apps.production.domain.types.arguments import TYPES, Argument, runs_in
from apps.production.domain.types.declaration import general_workflow, read_declaration
from apps.production.domain.yaml_text import parse_yaml
from tests.pumps import slow_input, within
from tests.worst_inputs import Input

REFUSALS = (ValueError, LookupError)
DOMAIN = [
    importlib.import_module(module.name)
    for module in pkgutil.walk_packages(domain.__path__, f"{domain.__name__}.")
]
HOSTILE = [
    "59:",
    "1",
    "1 ",
    "1,",
    "1-",
    "1-2,",
    "1h",
    "1 h ",
    "1.",
    "1_000",
    "1'",
    "1e",
    "9",
    "e",
    "@a",
    "@",
    "v1",
    "_v1",
    " ",
    "\n",
    "1\n",
    "a\n",
    "\u2028",
    "\ufeff",
    "\u0130",
    "é",
    "{a}",
    "{",
    "a{1000}",
    "(a*)*",
    "(",
    "_part1of1",
]
YAML = [
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
    "a: |\n x\n",
    "a: b\n  c\n",
    "\t",
    "k: 1\n",
    "[1,",
    "a: yes\n",
    "a: 2026-01-01\n",
    "a: ~\n",
    "a: !!int 1\n",
]


def test_patterns_are_constants_of_their_modules():
    """A pattern inside a function would escape `tests.test_pumps`."""
    for module in DOMAIN:
        for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re."):
                assert ast.unparse(node.func) == "re.compile", f"{module.__name__}:{node.lineno}"


@pytest.mark.parametrize(
    "call",
    [mentions_in, next_name, runs_in, ranges, parse_count, parse_duration, parse_size],
    ids=lambda f: f.__name__,
)
def test_parsers(call):
    inputs = [
        Input(before, part, after)
        for part in HOSTILE
        for before, after in (("", ""), ("", "!"), ("1 ", ""))
    ]
    assert slow_input(call, inputs, REFUSALS) == ""


@pytest.mark.parametrize("type_", TYPES)
def test_arguments(type_):
    argument = Argument(name="x", type=type_, choices=("a",) if type_ == "choice" else ())
    inputs = [Input("", part, after) for part in HOSTILE for after in ("", "e9")]
    assert slow_input(argument.read, inputs, REFUSALS) == ""
    assert slow_input(argument.parse, inputs, REFUSALS) == ""


@pytest.mark.parametrize("before", ["", "a: ", "[&a x, "])
def test_yaml(before):
    assert (
        slow_input(parse_yaml, [Input(before, part) for part in (*YAML, *HOSTILE)], REFUSALS) == ""
    )


@pytest.mark.parametrize(
    "frame", ["%s", "title: %s", "arguments: [%s]", "stages: {s: {title: a, command: ['%s']}}"]
)
def test_declarations(frame):
    """One declaration took 45 seconds: each fault of a word of many placeholders repeated
    the word.
    """

    def read(text: str) -> None:
        read_declaration(frame % text[:99_000], key="t")

    assert slow_input(read, [Input("", part) for part in (*YAML, *HOSTILE)], REFUSALS) == ""


MANY = 20_000
PLAIN = {
    "names": {f"k{i}": 1 for i in range(MANY)},
    "arguments": {"arguments": {f"k{i}": 1 for i in range(MANY)}},
    "stages": {"stages": [1] * MANY},
    "names of a stage": {"stages": [{f"k{i}": 1 for i in range(MANY)}]},
    "services": {"stages": [{"services": [1] * MANY}]},
    "duration": {"stages": [{"wall_seconds": Input("", "59:").text()}]},
    "text": {"title": Input("", "a").text()},
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_data(name):
    with within(what=name):
        read_plain(PLAIN[name], general_workflow())


def test_long_number_is_refused():
    with pytest.raises(ValueError, match="Enter a number"):
        Argument(name="x", type="number").read("9" * 1000 + "e999999999999999999")
