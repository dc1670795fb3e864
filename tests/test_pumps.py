"""Every regular expression of the apps stays below half a second on 200 kB of its worst input."""

import re
from pkgutil import iter_modules

import pytest

import apps
from tests.pumps import Pattern, patterns_of, slow_inputs

#: They have tests of their own, with what their callers refuse before.
TESTED = {"archive", "clusters"}
PATTERNS = patterns_of(*(f"apps.{module.name}" for module in iter_modules(apps.__path__) if module.name not in TESTED))


def test_there_are_patterns():
    assert len(PATTERNS) > 20


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.where.removeprefix("apps."))
def test_pattern_is_fast(pattern):
    assert slow_inputs(pattern) == ""


@pytest.mark.parametrize(
    ("source", "method"),
    [
        (r"(a+)+$", "search"),
        (r"\s+$", "search"),
        (r"[a-z]+://[^@]*@", "search"),
        (rb"[-+]?(\d+\.?\d*|\.\d+)", "fullmatch"),
        (rb"(?m)^Environment used for (\S+)[^\n]*\n-{80}\n", "finditer"),
    ],
)
def test_a_careless_pattern_is_found(source, method):
    assert slow_inputs(Pattern("test", source, re.compile(source).flags, (method,)), killed_after=2) != ""
